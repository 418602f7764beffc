"""The only code that changes the cluster."""
