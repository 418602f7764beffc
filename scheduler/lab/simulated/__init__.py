"""Simulated controllers, drivers and kubelets."""
