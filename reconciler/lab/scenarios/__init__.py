"""The built-in scenarios, in the same file format as a user's own (see lab/scenario.py)."""
