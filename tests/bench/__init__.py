"""Figures about speed and memory: `python -m tests.bench [--quick] [--json] [SECTION ...]`.

Nothing here asserts a time. A figure stands beside a floor (the least that the task takes by any means) or a peer (what
the task takes with the usual means), measured in the same run on the same data, so that machines can be told apart.

start    --help
search   the worst case of the planner's search
scale    load, resolve, diff, plan and write for 100 to 10,000 nodes, each in a process of its own
paper    what is read and written between commands: an observation's file, the ledger's records
rehearse a new image for every node, played in virtual time
wire     observation of a lab on loopback: nodes a second, CPU per node by source and tier

fleets makes the fleet of N nodes that `scale` and `paper` work on, and store keeps it on disk.
"""
