"""A soak: loads that run in turn on a node for hours or days, as a systemd unit that outlives whoever started it.

on_node   the commands: start, look, read an output, stop; and the script that runs there
look      what a look found
steps     the commands of its loads (model/soak.py)
verdict   what the runs of the loads amount to
"""
