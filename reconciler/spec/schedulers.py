"""Check that what a spec asks of its schedulers is what Kubernetes, Slurm or both of them can do."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.model.vocab import DrainProvider
from reconciler.spec.kinds.cluster import ClusterSpec, ClusterType, paired
from reconciler.spec.kinds.fleet import FleetSpec
from reconciler.spec.kinds.persona import PersonaSpec
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.strict_yaml.parse import Steps


def check_schedulers(
    fleet: DeclaredResource[FleetSpec], declared: Declarations, nodes: set[str]
) -> Iterator[Diagnostic]:
    """Yield the problems of the fleet's cluster and its personas. A fleet without a cluster has none here."""
    cluster = declared.clusters.get(fleet.spec.cluster or "")
    if cluster is None:
        return
    kubernetes, slurm = cluster.spec.type is not ClusterType.SLURM, cluster.spec.slurm is not None
    if slurm:
        yield from _reached(fleet, cluster, nodes)
    for persona in declared.personas.values():
        if slurm:
            yield from _with_slurm(persona)
        else:
            yield from _without_slurm(persona, cluster)
        if not kubernetes:
            yield from _without_kubernetes(persona)
    if not kubernetes:
        for index, one in enumerate(fleet.spec.notifications):
            if one.kubernetes:
                problem = f"Cluster {cluster.name!r} is a Slurm, which has no Events"
                yield fleet.problem(("notifications", index, "kubernetes"), problem)


def _reached(
    fleet: DeclaredResource[FleetSpec], cluster: DeclaredResource[ClusterSpec], nodes: set[str]
) -> Iterator[Diagnostic]:
    slurm = cluster.spec.slurm
    assert slurm is not None
    if fleet.spec.ssh is None:
        problem = "Slurm is reached over SSH, and spec.ssh of the Fleet does not say how"
        yield cluster.problem(("slurm", "login"), problem)
    if slurm.reserve is not None and not fleet.spec.windows:
        problem = "nodes are reserved before windows, and the Fleet has none"
        yield cluster.problem(("slurm", "reserve"), problem, "declare windows, or take it out")
    for ours in slurm.nodes:
        unknown = next((name for name in paired({ours: ours}) if name not in nodes), None)
        if unknown is not None:
            yield cluster.problem(
                ("slurm", "nodes", ours), f"there is no node {unknown!r}", did_you_mean(unknown, nodes)
            )
    names = paired(slurm.nodes)
    renamed = {theirs: ours for ours, theirs in names.items()}
    for name in sorted(nodes - set(names)):
        if name in renamed:
            problem = f"{renamed[name]!r} and {name!r} would both be node {name!r} of Slurm"
            yield cluster.problem(("slurm", "nodes"), problem, f"give {name!r} a name in Slurm here")


def _with_slurm(persona: DeclaredResource[PersonaSpec]) -> Iterator[Diagnostic]:
    drain = persona.spec.drain
    if drain.provider.asks_cluster and drain.wait_for_jobs is None:
        given = "drain" in persona.spec.model_fields_set
        problem = "jobs of Slurm would be requeued at once: the drain does not say how long they may go on"
        hint = "write drain.waitForJobs, like 24h; 1s requeues them at once"
        yield persona.problem(("drain", "provider") if given else (), problem, hint)


def _without_slurm(
    persona: DeclaredResource[PersonaSpec], cluster: DeclaredResource[ClusterSpec]
) -> Iterator[Diagnostic]:
    drain = persona.spec.drain
    hint = f"say how it is reached in `slurm` of Cluster {cluster.name!r} ({cluster.at()})"
    if drain.provider is DrainProvider.SLURM:
        yield persona.problem(("drain", "provider"), "the fleet's cluster has no Slurm", hint)
    if drain.checkpoint is not None and drain.checkpoint.signal is not None:
        place: Steps = ("drain", "checkpoint", "signal")
        yield persona.problem(place, "only jobs of Slurm get a signal, and the fleet's cluster has no Slurm", hint)


def _without_kubernetes(persona: DeclaredResource[PersonaSpec]) -> Iterator[Diagnostic]:
    spec = persona.spec
    if "drain" in spec.model_fields_set and spec.drain.provider is DrainProvider.KUBERNETES:
        yield persona.problem(("drain", "provider"), "the fleet's cluster is a Slurm", "use provider slurm")
    checkpoint = spec.drain.checkpoint
    for way in ("annotation", "http"):
        if checkpoint is not None and getattr(checkpoint, way) is not None:
            problem = "jobs of Slurm are no pods, and are not asked in this way"
            yield persona.problem(("drain", "checkpoint", way), problem, "use signal or command")
    for place in ("surge", "kueue"):
        if getattr(spec.drain, place) is not None:
            yield persona.problem(("drain", place), "the fleet's cluster is a Slurm, which has none of this")
    for place in ("labels", "taints"):
        if getattr(spec, place):
            yield persona.problem((place,), f"the fleet's cluster is a Slurm, whose nodes have no {place}")
