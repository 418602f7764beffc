"""What an expression costs: the API server's estimate, an upper bound of our own, and the meter of an evaluation."""
