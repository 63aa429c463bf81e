"""Effects of faults on a fleet, with in-process ports under virtual time. tests/e2e/test_faults.py has wire faults.

matrix    every fault of the lab, injected when an action begins, and the expected end
cells     runs one cell of the matrix
schedule  random events on a small fleet over some hours, drawn from a seed
schedule_run  runs a schedule and checks invariants
rollout   a new image for hundreds of nodes, of which some fail
"""
