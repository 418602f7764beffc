"""Extension points, statuses and cycle state."""
