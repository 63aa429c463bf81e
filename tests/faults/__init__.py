"""What faults do to a fleet, on the in-process front under virtual time. Those of the wire: tests/e2e/test_faults.py.

matrix    every fault of the lab, struck as an action of the catalogue begins, and what must come of it
cells     plays one of these
schedule  what happens to a small fleet over some hours, drawn from a seed
life      plays a schedule, and looks on
rollout   a new image for hundreds of nodes, of which some fail
"""
