"""The documentation, and in `docs.gen` the code that makes the reference pages."""
