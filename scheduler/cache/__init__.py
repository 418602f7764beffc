"""Pure stores of cluster state, one writer each."""
