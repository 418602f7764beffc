"""One predicate or scorer a file."""
