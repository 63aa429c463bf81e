"""Command-line tools of a host. Each answers from the state of its machine, in the real tool's format."""
