"""The ports of model/ports.py over lab machines, without a wire: for thousands of nodes under virtual time.

They fail as the drivers fail on the wire: the same kinds of DriverError and Silent for the same faults.
"""

from __future__ import annotations

from reconciler.lab.inprocess.fabric import LabFabric
from reconciler.lab.inprocess.virtual_time import VirtualClock, run_virtual

__all__ = ["LabFabric", "VirtualClock", "run_virtual"]
