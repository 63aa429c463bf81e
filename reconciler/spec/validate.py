"""Load a spec from a directory or a git revision: return its Fleet, or every problem at once.

A problem never hides another one: files that can't be read, resources that can't be parsed and names that don't
resolve are all collected before the verdict. Nothing is contacted and no secret is resolved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from reconciler.model.desired import Fleet, SpecSource
from reconciler.model.errors import Diagnostic, SpecError, UsageError, did_you_mean
from reconciler.model.releases import DesiredRelease
from reconciler.spec.access import access_positions, read_settings
from reconciler.spec.cohorts import read_references
from reconciler.spec.combinations import check_combinations, check_installable
from reconciler.spec.decommission import check_decommissioned
from reconciler.spec.fleetwide import check_fleet
from reconciler.spec.health import check_health, check_ignored_xids
from reconciler.spec.k3s import check_k3s
from reconciler.spec.kubelets import check_kubelets
from reconciler.spec.limits import ended_holds
from reconciler.spec.load import load_documents
from reconciler.spec.network import check_networks
from reconciler.spec.node_source import Expansion, NodeSource, find_overlaps
from reconciler.spec.nodes import expand_pool
from reconciler.spec.operators import DeclaredRelease, desired_releases, read_releases
from reconciler.spec.ownership import check_ownership
from reconciler.spec.parse import Declarations, parse_resources
from reconciler.spec.references import check_references
from reconciler.spec.resolve import resolve
from reconciler.spec.tolerations import check_tolerations, runs_out_of_service
from reconciler.spec.tree import SpecTooLarge, SpecTree


def load_spec(source: Path | Mapping[str, bytes], *, directory: str, origin: SpecSource | None = None) -> Fleet:
    """Return the fleet that the spec describes. Raise SpecError, with warnings included, when the spec has errors."""
    fleet, diagnostics = check_spec(source, directory=directory, origin=origin)
    if fleet is None:
        raise SpecError(diagnostics)
    return fleet


def check_spec(
    source: Path | Mapping[str, bytes],
    *,
    directory: str,
    origin: SpecSource | None = None,
    now: datetime | None = None,
    acceptance: str = "",
) -> tuple[Fleet | None, tuple[Diagnostic, ...]]:
    """Return the fleet, None when there are errors, and all diagnostics in order of position.

    `source` is a directory, or contents by path below it. `directory` names it in positions. With `now`, holds that
    have ended by then give warnings. `acceptance`: name of the AcceptanceProfile that takes the place of each other
    one; UsageError when there is no such profile.
    """
    tree = SpecTree(source, directory)
    if isinstance(source, Path) and not source.is_dir():
        return None, (Diagnostic(tree.where(""), "", "no such directory"),)
    documents, problems = load_documents(tree)
    complete = not problems  # half a spec is not checked for what may be in the other half
    if not documents and not problems:
        problems.append(
            Diagnostic(tree.where(""), "", "the spec is empty", "it needs *.yaml files with a Fleet in one")
        )
        return None, tuple(problems)
    declared, found = parse_resources(documents, problems)
    if acceptance:
        _replace_acceptance(declared, acceptance)
    complete = complete and not found
    problems += found
    found = _one_fleet(declared, tree, complete)
    complete = complete and not found
    problems += found
    problems += check_references(declared)
    nodes, found = _nodes(declared, tree)
    complete = complete and not found
    problems += found + find_overlaps(nodes)
    if not declared.fleets:
        return None, _ordered(problems)
    fleet = declared.fleets[0]
    settings, found = read_settings(declared, tree)
    problems += found
    releases, found = read_releases(declared, tree)
    complete = complete and not found
    problems += found
    problems += _across(declared, nodes)
    if complete:
        problems += check_fleet(fleet, declared, nodes)
        problems += _of_operators(declared, releases, nodes)
        if not nodes and not _errors(problems):
            problems.append(fleet.problem((), "the spec names no node", "an empty fleet would forget every node"))
    if now is not None:
        problems += ended_holds(declared, now)
    references, found = read_references(tree)
    problems += found
    if _errors(problems):
        return None, _ordered(problems)
    problems += check_installable(declared, nodes)
    settings = replace(settings, releases=_releases(releases))
    resolved = resolve(declared, nodes, settings, origin or SpecSource(directory), references)
    return replace(resolved, places=access_positions(declared)), _ordered(problems)


def _of_operators(
    declared: Declarations, releases: list[DeclaredRelease], nodes: list[NodeSource]
) -> Iterator[Diagnostic]:
    yield from check_ownership(declared, releases, nodes)
    yield from check_tolerations(declared, releases, nodes)


def _releases(found: list[DeclaredRelease]) -> tuple[DesiredRelease, ...]:
    wanted = zip(desired_releases(found), found, strict=True)
    return tuple(replace(one, out_of_service=runs_out_of_service(declared)) for one, declared in wanted)


def _across(declared: Declarations, nodes: list[NodeSource]) -> Iterator[Diagnostic]:
    """Yield the problems of resources that have to fit together, also where others can't be read."""
    yield from check_health(declared.fleets[0])
    for policy in declared.remediation.values():
        yield from check_ignored_xids(policy)
    yield from check_combinations(declared)
    yield from check_decommissioned(declared, nodes)
    yield from check_networks(declared)
    yield from check_k3s(declared, nodes)
    yield from check_kubelets(declared, nodes)


def _nodes(declared: Declarations, tree: SpecTree) -> tuple[list[NodeSource], list[Diagnostic]]:
    nodes: list[NodeSource] = []
    expansion = Expansion(tree)
    try:
        for pool in declared.pools.values():
            nodes += expand_pool(pool, expansion)
    except SpecTooLarge as error:
        expansion.problems.append(error.diagnostic)
    return nodes, expansion.problems


def _replace_acceptance(declared: Declarations, name: str) -> None:
    chosen = declared.acceptance.get(name)
    if chosen is None:
        raise UsageError(f"the spec has no AcceptanceProfile {name!r}; {did_you_mean(name, declared.acceptance)}")
    declared.acceptance = dict.fromkeys(declared.acceptance, chosen)


def _one_fleet(declared: Declarations, tree: SpecTree, complete: bool) -> list[Diagnostic]:
    if not declared.fleets:
        told_already = not complete or "Fleet" in declared.unread
        return [] if told_already else [Diagnostic(tree.where(""), "", "there is no Fleet", "a spec has exactly one")]
    first = declared.fleets[0]
    return [
        Diagnostic(fleet.position, "metadata.name", "there are two Fleets", f"the other is at {first.position}")
        for fleet in declared.fleets[1:]
    ]


def _errors(problems: list[Diagnostic]) -> bool:
    return any(problem.severity == "error" for problem in problems)


def _ordered(problems: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(set(problems), key=lambda problem: (problem.at, problem.path, problem.problem)))
