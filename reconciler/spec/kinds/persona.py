"""Persona: the purpose of a node, with labels and taints, GPU mode, host configuration, drain and acceptance tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from reconciler.model.container_images import HOME as ARCHIVES
from reconciler.model.vocab import DrainProvider, SignalTo, StopPolicy
from reconciler.spec.kinds.base import (
    ContainerImageName,
    KeptMount,
    LabelKey,
    LabelValue,
    PositiveDuration,
    Resource,
    SavedPath,
)
from reconciler.spec.kinds.settings import HostSettings
from reconciler.strict_yaml.models import Argv, Checked, Matching, Model, Name

_MIG_PROFILE = re.compile(r"([1-7])g\.(\d+)gb(\+me(\.all)?|\+gfx|-me)?")
_COMPUTE_SLICES = 7  # of every GPU that has MIG


def _mig(value: Any) -> Any:
    """Turn "disabled" into the empty layout. Raise ValueError for a layout that no GPU can have."""
    if value == "disabled":
        return {}
    if not isinstance(value, dict) or not value:
        raise ValueError(f'{value!r} is neither disabled nor a layout like {{"3g.40gb": 2}}')
    slices = 0
    for profile, count in value.items():
        match = _MIG_PROFILE.fullmatch(profile)
        if match is None:
            raise ValueError(f"{profile!r} is not a MIG profile; write it like 3g.40gb or 1g.10gb+me")
        if isinstance(count, int):
            slices += int(match[1]) * count
    if slices > _COMPUTE_SLICES:
        raise ValueError(f"the layout needs {slices} compute slices, and a GPU has {_COMPUTE_SLICES}")
    return value


MigLayout = Annotated[
    Mapping[str, Annotated[int, Field(ge=1, le=7)]],
    BeforeValidator(_mig),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "disabled"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": {"pattern": f"^{_MIG_PROFILE.pattern}$"},
                    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 7},
                },
            ]
        }
    ),
]


def _share(text: str) -> None:
    if not 0 < float(text.rstrip("%")) < 100:
        raise ValueError(f"{text!r} is no objective: write more than 0% and less than 100%, which nothing keeps")


Share = Annotated[str, Matching(r"\d{1,2}(\.\d{1,4})?%", "a share like 99.9%"), Checked(_share)]


# A name that kubelet takes of a device plugin: a domain of its vendor, a slash, a name (k8s.io, "Extended resources").
ResourceName = Annotated[
    str,
    Matching(r"(?![a-z0-9.-]*kubernetes\.io/)[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
             "the name of a resource of a device plugin like nvidia.com/gpu"),
]  # fmt: skip

Repository = Annotated[
    str,
    Matching(
        r"(?:/|sftp:|rest:https?://|s3:https?://)(?!\S*:[^/\s]*@)\S+",
        "a repository of restic (rest:https://..., s3:https://..., sftp:..., /DIR), without a password in it",
    ),
]


ResticVariable = Annotated[
    str,
    Matching(
        r"RESTIC_PASSWORD|RESTIC_REST_(?:USERNAME|PASSWORD)"
        r"|AWS_(?:ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|DEFAULT_REGION)",
        "RESTIC_PASSWORD, RESTIC_REST_USERNAME or _PASSWORD, or AWS_ACCESS_KEY_ID, _SECRET_ACCESS_KEY, _SESSION_TOKEN "
        "or _DEFAULT_REGION",
    ),
]


QueueName = Annotated[str, Matching(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "the name of a ClusterQueue like team-a")]


class Effect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class TaintSpec(Model):
    """A Kubernetes taint."""

    key: LabelKey = Field(description="Key of the taint.")
    value: LabelValue = Field(default="", description="Value of the taint.")
    effect: Effect = Field(description="NoSchedule, PreferNoSchedule or NoExecute.")


class GpuMode(Model):
    """The mode of every GPU of the node."""

    mig: MigLayout | None = Field(
        default=None, description="disabled, or MIG profiles and how many of each one GPU has."
    )


class CheckpointCommand(Model):
    """Commands on the host that ask its work to save its state."""

    ask: Argv = Field(description="Program and arguments that ask, once for each drain; exit 0 means asked.")
    ready: Argv = Field(description="Program and arguments that look; exit 0 means that nothing is left to be saved.")


class CheckpointHttp(Model):
    """A request to each pod that takes part, through the API server. POST asks, GET with a 2xx answer means ready."""

    port: Annotated[int, Field(ge=1, le=65535)] = Field(description="Port of the pod.")
    path: Annotated[str, Matching(r"/[A-Za-z0-9._~/-]*", "a path such as /checkpoint")] = Field(
        description="Path of the URL."
    )


class CheckpointSignal(Model):
    """A signal to jobs of Slurm."""

    name: Annotated[str, Field(pattern=r"^(USR1|USR2|TERM|INT|HUP|CONT|URG)$")] = Field(
        default="USR1", description="USR1, USR2, TERM, INT, HUP, CONT or URG."
    )
    to: SignalTo = Field(
        default=SignalTo.BATCH,
        description="Which processes get it. batch: the batch script. steps: what srun started. all: both.",
    )


class CheckpointSpec(Model):
    """How work is asked to save its state before it is evicted, in exactly one way."""

    annotation: Literal[True] | None = Field(
        default=None,
        description='Ask each pod with the annotation `reconciler.dev/checkpoint: "true"` by the annotation '
        "reconciler.dev/drain-at, a time. It is ready when its annotation reconciler.dev/ready-to-evict says the same.",
    )
    command: CheckpointCommand | None = Field(default=None, description="Ask by a command on the host.")
    http: CheckpointHttp | None = Field(
        default=None, description='Ask each pod with the annotation `reconciler.dev/checkpoint: "true"` over HTTP.'
    )
    signal: CheckpointSignal | None = Field(
        default=None,
        description="Signal each job of Slurm with the word reconciler.dev/checkpoint in its comment, once. It "
        "has saved its state when it ends.",
    )
    timeout: PositiveDuration = Field(
        default="10m", description="How long the answers are waited for. After that, the work is evicted all the same."
    )

    @model_validator(mode="after")
    def _one_way(self) -> CheckpointSpec:
        if sum(way is not None for way in (self.annotation, self.command, self.http, self.signal)) != 1:
            raise ValueError("a checkpoint is asked for in one way: annotation, command, http or signal")
        return self


class SurgeSpec(Model):
    """More replicas elsewhere, ready, before pods that serve are evicted."""

    of: Literal["annotated", "all"] = Field(
        default="annotated",
        description='Which pods. annotated: those with the annotation `reconciler.dev/surge: "true"`. all: all of '
        "Deployments, StatefulSets, LeaderWorkerSets and InferenceServices of KServe but those that say "
        '`"false"`.',
    )
    timeout: PositiveDuration = Field(
        default="15m",
        description="How long the new replicas may take to be ready. After that they are taken back, and the node is "
        "not drained.",
    )


class QueueHoldSpec(Model):
    """ClusterQueues of Kueue that are stopped from the drain of a node until it is admitted again."""

    cluster_queues: Annotated[tuple[QueueName, ...], Field(min_length=1)] = Field(
        description="Names of the ClusterQueues."
    )
    stop_policy: StopPolicy = Field(
        default=StopPolicy.HOLD_AND_DRAIN,
        description="HoldAndDrain: Kueue evicts what it has admitted. Hold: that runs to its end, see waitForJobs.",
    )
    timeout: PositiveDuration = Field(
        default="5m", description="How long pods of queues may take to leave the node. After that they are evicted."
    )


class Drain(Model):
    """How work leaves a node before it is disrupted."""

    provider: DrainProvider = Field(
        description="kubernetes, slurm: take the node out of the fleet's cluster (out of both, where it has both), and "
        "evict pods and requeue jobs. command: run a command on the host. none: do not wait for any work."
    )
    timeout: PositiveDuration = Field(default="10m", description="How long a drain may take.")
    grace: PositiveDuration | None = Field(
        default=None, description="Grace period for every pod. Absent: each pod's own."
    )
    force: bool = Field(default=False, description="Whether to delete the pods that are left after the timeout.")
    evict_unmanaged: bool = Field(
        default=False,
        description="Whether to evict pods that declare no controller, so that nothing starts them again. Absent: a "
        "node with such pods is not drained, as with `kubectl drain` without --force.",
    )
    delete_empty_dir_data: bool = Field(
        default=False,
        description="Whether to evict pods with emptyDir volumes, whose data are lost. Absent: a node with such pods "
        "is not drained, as with `kubectl drain` without --delete-emptydir-data.",
    )
    command: Argv | None = Field(
        default=None, description="With provider command: program and arguments; exit 0 means that nothing runs."
    )

    checkpoint: CheckpointSpec | None = Field(
        default=None, description="Ask the work to save its state, and wait until it has. Absent: it is not asked."
    )
    wait_for_jobs: PositiveDuration | None = Field(
        default=None,
        description="How long finite work (pods of Jobs, JobSets and Kubeflow's training jobs, and jobs of Slurm) may "
        "go on on the cordoned node before it is evicted. Absent: it is evicted at once. Slurm needs it.",
    )

    surge: SurgeSpec | None = Field(
        default=None, description="Raise what serves elsewhere before its pods are evicted. Absent: nothing is raised."
    )
    kueue: QueueHoldSpec | None = Field(
        default=None, description="Stop queues of Kueue while a node is out. Absent: none is stopped."
    )

    @model_validator(mode="after")
    def _waits_fit(self) -> Drain:
        if not self.provider.asks_cluster and (self.checkpoint or self.wait_for_jobs):
            raise ValueError("checkpoint and waitForJobs need provider kubernetes or slurm: others see no work")
        if not self.provider.asks_cluster and (self.surge or self.kueue):
            raise ValueError("surge and kueue need provider kubernetes, or slurm with a Kubernetes beside it")
        return self

    @model_validator(mode="after")
    def _command_fits(self) -> Drain:
        if (self.provider is DrainProvider.COMMAND) != (self.command is not None):
            raise ValueError("provider command needs a command, and other providers have none")
        return self


class Backup(Model):
    """Data that is saved before a disk is written, and restored before the node serves again. restic does it."""

    paths: tuple[SavedPath, ...] = Field(
        default=(), description="Files and directories on the host, each with all in it."
    )
    images: tuple[ContainerImageName, ...] = Field(
        default=(), description="Container images, named as the host's runtime does; loaded again after it."
    )
    repository: Repository = Field(
        description="Repository of restic: rest:https://HOST/, s3:https://HOST/BUCKET, sftp:USER@HOST:/DIR, or a "
        "directory that is mounted on the host."
    )
    environment: Mapping[ResticVariable, Name] = Field(
        description="Variable of restic -> name of the secret that it is set to. RESTIC_PASSWORD is needed."
    )

    @model_validator(mode="after")
    def _each_once(self) -> Backup:
        if not self.paths and not self.images:
            raise ValueError("say what is saved: paths or images")
        paths = (*self.paths, ARCHIVES) if self.images else self.paths
        for path in paths:
            for other in paths:
                if f"{other}/".startswith(f"{path}/") and (path != other or paths.count(path) > 1):
                    raise ValueError(f"paths: {other} is within {path}, which is saved with all in it")
        return self

    @model_validator(mode="after")
    def _has_password(self) -> Backup:
        if "RESTIC_PASSWORD" not in self.environment:
            raise ValueError("environment: name the secret of the repository's password as RESTIC_PASSWORD")
        return self


class PersonaSpec(Model):
    """The configuration of nodes with one purpose."""

    labels: Mapping[LabelKey, LabelValue] = Field(
        default={}, description="Kubernetes labels to set. Others are not changed."
    )
    taints: tuple[TaintSpec, ...] = Field(default=(), description="Kubernetes taints to set. Others are not changed.")
    allocatable: Mapping[ResourceName, Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        default={},
        description="Resources of device plugins, and how many of each a node has to offer in the cluster before it is "
        "admitted, such as `rdma/rdma_shared_device_a: 63`. Those of NVIDIA's GPUs follow from hardware and MIG where "
        "the cluster has a gpu-operator; what is here takes their place.",
    )
    gpu: GpuMode = Field(default=GpuMode(), description="Mode of the GPUs.")
    host: HostSettings = Field(default=HostSettings(), description="Configuration of the running host.")
    drain: Drain = Field(
        default=Drain(provider=DrainProvider.KUBERNETES), description="How work leaves a node before it is disrupted."
    )
    backup: Backup | None = Field(
        default=None,
        description="What is saved of a node before its disk is written. Without a whole backup none is written.",
    )
    acceptance: Name | None = Field(
        default=None, description="Name of the AcceptanceProfile that a node must pass. Absent: no tests are run."
    )
    availability: Share | None = Field(
        default=None,
        description="Objective for the share of node-hours in service, like 99.9%. Reports and metrics compare with "
        "it; nothing acts on it.",
    )
    preserve: tuple[KeptMount, ...] = Field(
        default=(),
        description="Mount points of partitions that an install keeps on nodes with this persona, beside those of the "
        "image's own `preserve`: /state, /data.",
    )


class Persona(Resource):
    """The purpose of a node."""

    kind: Literal["Persona"] = Field(description="Persona.")
    spec: PersonaSpec = Field(description="Configuration of nodes with this purpose.")
