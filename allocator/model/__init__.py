"""API types that allocation reads and writes, in the shape of `resource.k8s.io/v1`."""
