"""A pod as far as a drain needs to know it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from reconciler.model.privacy import FreeText, PublicText, Unpublished

_PLACED: Final = " by topology"


@dataclass(frozen=True, slots=True, order=True)
class Workload:
    """Work of several pods that depend on each other. `group`: the replica of a LeaderWorkerSet, whose pods restart
    together; "" = all of its pods do. `queue`: of Kueue, where its pods carry that label. `placed`: Kueue has placed it
    by topology: it replaces one of its nodes, and evicts all of it when there are two (KEP-2724, "Node failures").
    """

    kind: PublicText  # Job, JobSet, LeaderWorkerSet, PodGroup (of Kueue), PyTorchJob ...
    namespace: Unpublished[FreeText]
    name: Unpublished[FreeText]
    group: Unpublished[FreeText] = ""
    queue: Unpublished[FreeText] = ""
    placed: bool = False

    @property
    def whole(self) -> str:
        """The name of the whole, such as "JobSet ml/llama"; with " by topology" where it is placed so."""
        return f"{self.kind} {self.namespace}/{self.name}{_PLACED if self.placed else ''}"


def is_placed(whole: str) -> bool:
    """Return whether the name of a whole says that Kueue has placed it by topology: marks keep names alone."""
    return whole.endswith(_PLACED)


def unplaced(whole: str) -> str:
    """Return the name of a whole, however it was placed: of one job, only some pods may be placed by topology."""
    return whole.removesuffix(_PLACED)


@dataclass(frozen=True, slots=True)
class PodCheckpoint:
    """A pod that can save its state when it is asked to. `asked`: the value of our request; `answer`: of its answer."""

    asked: Unpublished[FreeText] = ""
    answer: Unpublished[FreeText] = ""


@dataclass(frozen=True, slots=True)
class Pod:
    namespace: Unpublished[FreeText]
    name: Unpublished[FreeText]
    uid: Unpublished[FreeText]
    phase: PublicText
    owner_kind: PublicText  # DaemonSet, ReplicaSet, Job, Node (a mirror pod), "" = bare
    evictable: bool  # not a DaemonSet's, not a mirror pod, not finished
    local_storage: bool = False  # it has an emptyDir volume, whose data end with it
    terminating_since: datetime | None = None  # None: nobody has asked for its deletion
    ends_at: datetime | None = None  # when the grace period of its deletion is over
    finalizers: tuple[Unpublished[FreeText], ...] = ()  # what must be done before its object may go
    finite: bool = False  # it ends by itself: of a Job or another controller of work that has an end
    checkpoint: PodCheckpoint | None = None  # None: it does not say that it can save its state
    workload: Unpublished[Workload | None] = None  # None: no other pod depends on it
    due_at: datetime | None = None  # when it ends at the latest, by a time limit; None: nobody knows
    operand: PublicText = ""  # the DaemonSet that it is of, if that is one of model/operands.py
    surge: bool | None = None  # whether it asks for a replica elsewhere before it is evicted; None: it does not say
    ready: bool = False  # of an operand or an evictable pod: it is Ready, and nobody has asked for its deletion
    on_gpus: bool = False  # it has not finished and asks for GPUs, whoever owns it

    def kept_by_finalizer(self, at: datetime) -> bool:
        """Return whether nothing but finalizers keep the object."""
        return bool(self.finalizers) and self.ends_at is not None and self.ends_at <= at
