"""The rules by which the API server rejects objects."""
