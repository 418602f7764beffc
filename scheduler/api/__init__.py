"""JSON to model and back, by API group and version."""
