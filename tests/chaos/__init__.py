"""The crash matrix: the reconciler is killed at every point of every action, and the next run must still converge."""
