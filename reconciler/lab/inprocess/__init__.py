"""The ports of model/ports.py on lab machines without a network, for thousands of nodes under virtual time.

They fail like the drivers on the wire: with the same kinds of DriverError and Silent for the same faults.
"""

from __future__ import annotations

from reconciler.lab.inprocess.fabric import LabFabric
from reconciler.lab.inprocess.virtual_time import VirtualClock, run_virtual

__all__ = ["LabFabric", "VirtualClock", "run_virtual"]
