"""Benchmarks of speed and memory: `python -m tests.bench [--quick] [--json] [SECTION ...]`.

No benchmark asserts a time. Each figure is shown with a floor (the minimum for the task) or a peer (the task with
usual libraries), measured in the same run on the same data, so that results of different machines can be compared.

start    --help
search   the worst case of the planner's search
scale    load, resolve, diff, plan and write for 100 to 10,000 nodes, each in its own process
documents  the files read and written by commands: an observation, the ledger's records
schedules  random schedules of signals under five rules; `--schedules N` plays N of them
rehearse a new image for every node in virtual time
wire     observation of a lab on loopback: nodes a second, CPU per node by source and tier

fleets makes the fleet of N nodes that `scale` and `documents` use, and store keeps it on disk.
"""
