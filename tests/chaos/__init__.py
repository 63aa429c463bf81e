"""The crash matrix: the reconciler is killed at every point of every action, and the next run has to cope."""
