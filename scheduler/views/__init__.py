"""Plain data for people: what explain and top show."""
