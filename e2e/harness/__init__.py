"""A real Kubernetes control plane on loopback, and what the end-to-end tests need around it."""
