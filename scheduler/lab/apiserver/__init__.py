"""An embedded API server for demos and tests."""
