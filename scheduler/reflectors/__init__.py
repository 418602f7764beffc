"""Lists and watches that keep the cache current."""
