"""The policy of a drain: how work leaves a node, and what it is given before that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconciler.model.pods import Pod
from reconciler.model.slurm import JOB
from reconciler.model.vocab import CheckpointWay, DrainProvider, SignalTo, StopPolicy

TAKES_PART: Final = "reconciler.dev/checkpoint"  # "true": the pod can save its state when it is asked to
DRAIN_AT: Final = "reconciler.dev/drain-at"  # our request: the time at which the pod is evicted at the latest
READY_TO_EVICT: Final = "reconciler.dev/ready-to-evict"  # its answer, which repeats the value of the request


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The way in which work is asked to save its state before it is evicted, and for how long that is waited for.

    `ask`, `ready`: of way `command`, argv on the host; exit 0 = asked, and = nothing is left to save. `port`, `path`:
    of way `http`, of each pod that takes part. `signal`, `to`: of way `signal`, for each job that takes part; it has
    saved its state when it ends.
    """

    way: CheckpointWay
    timeout_s: float
    ask: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    port: int = 0
    path: str = ""
    signal: str = ""
    to: SignalTo = SignalTo.BATCH

    def asks(self, pod: Pod) -> bool:
        """Return whether a pod is asked in this way. Signals are for jobs of Slurm, and the other ways for pods."""
        return pod.checkpoint is not None and (pod.owner_kind == JOB) is (self.way is CheckpointWay.SIGNAL)


@dataclass(frozen=True, slots=True)
class Surge:
    """More replicas elsewhere before pods that serve are evicted. `every`: of all pods but those that say no."""

    every: bool
    timeout_s: float  # how long the new replicas may take to be ready


@dataclass(frozen=True, slots=True)
class QueueHold:
    """Queues of Kueue that are stopped while a node is out. `timeout_s`: how long their pods may take to leave it."""

    queues: tuple[str, ...]
    stop_policy: StopPolicy
    timeout_s: float


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    provider: DrainProvider
    timeout_s: float = 600.0
    grace_s: float | None = None  # None: each pod's own
    force: bool = False  # delete what is left when the timeout passes
    command: tuple[str, ...] = ()  # provider `command`: argv on the host; exit 0 = quiesced
    evict_unmanaged: bool = False  # evict pods that no controller starts again
    delete_empty_dir_data: bool = False  # evict pods with emptyDir volumes
    checkpoint: Checkpoint | None = None  # None: work is not asked
    wait_for_jobs_s: float = 0.0  # how long finite work may go on before it is evicted
    surge: Surge | None = None  # None: nothing is raised before
    hold: QueueHold | None = None  # None: no queue is stopped
