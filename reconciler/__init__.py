"""A GitOps reconciler for fleets of GPU bare-metal nodes.

The folder listing is the map: `model` holds the words, `spec` reads what must be, `drivers` and `converge` read
what is, `diff` and `planner` decide, `converge` acts, `render` tells, `lab` plays a whole fleet on loopback.
"""

__version__ = "0.1.0"
