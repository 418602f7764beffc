"""Chooses devices for ResourceClaims, exactly as Kubernetes 1.37 does. Pure: no I/O, clock, randomness or logging."""
