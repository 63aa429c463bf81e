"""Names that Slurm's driver and the rest agree on: of its jobs among pods, and of its holds among taints."""

from __future__ import annotations

from typing import Final

JOB: Final = "SlurmJob"  # as a pod's owner, and as the kind of the workload of a job on several nodes
HOLD: Final = "slurm.reconciler.dev/held"  # a taint that stands for a hold of Slurm or of a person; never written
CHECKPOINT: Final = "reconciler.dev/checkpoint"  # a word in the comment of a job that saves its state when signalled

# The reasons that Slurm's own daemons give a node which they take out, at their beginning: slurmctld (node_mgr.c,
# node_scheduler.c, ping_nodes.c, job_mgr.c) and slurmd (req.c). They are findings, and nobody's decision.
OWN_REASONS: Final = (
    "Not responding",
    "Node unexpectedly rebooted",
    "Reboot ASAP",  # of `scontrol reboot` without a reason, and the next one, too
    "reboot requested",
    "reboot timed out",
    "reboot complete",
    "ResumeTimeout reached",
    "Kill task failed",
    "Prolog error",
    "Epilog error",
    "batch job complete failure",
    "Duplicate jobid",
    "Low ",  # Low RealMemory, Low socket*core*thread count, Low CPUs, Low TmpDisk
    "gres/",  # gres/gpu count reported lower than configured (7 < 8)
)
