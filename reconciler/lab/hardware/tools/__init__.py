"""Tools that a host's command lines start: each answers from the state of its machine, in the real tool's words."""
