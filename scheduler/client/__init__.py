"""What is asked of an API server."""
