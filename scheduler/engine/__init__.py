"""Questions, feasible sets and indexes."""
