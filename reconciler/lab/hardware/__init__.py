"""The hardware model: no I/O, an injected clock, written from what machines do and not from what the planner wants."""
