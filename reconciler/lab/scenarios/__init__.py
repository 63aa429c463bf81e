"""The built-in scenarios, as files of the same format as a user's own (see lab/scenario.py)."""
