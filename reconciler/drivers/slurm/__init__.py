"""Slurm through its own commands, run over SSH."""

from reconciler.drivers.slurm.reservations import SlurmReservations
from reconciler.drivers.slurm.slurm_cluster import SlurmCluster

__all__ = ["SlurmCluster", "SlurmReservations"]
