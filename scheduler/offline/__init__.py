"""Answers from manifests, with no cluster."""
