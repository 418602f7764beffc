"""The laboratory: an embedded API server, simulated controllers, kubelets and drivers, and the demo made of them.

For tests, the demo and simulations. Production code cannot import it; a contract in pyproject.toml checks that.
"""
