"""Groups of nodes that test together: who is in which, how many rounds that may take, and a gate's verdict by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.gate.fabric.bisect import Bisection, GroupRun, Passed
from reconciler.gate.fabric.pair_steps import Ended
from reconciler.model.desired import GateTest
from reconciler.model.gate import Verdict
from reconciler.model.gate_arguments import GROUP, SCOPE

LEAST = 4  # nodes of a group: a half that passes has two nodes, so that a suspect of the other can fail with two


def size_of(test: GateTest) -> int:
    return int(test.args[GROUP])


def scope_of(test: GateTest) -> str:
    return str(test.args.get(SCOPE, "leaf"))


def most_rounds(nodes: int) -> int:
    """Return 2 log2(N) + 3 for a group of N nodes, and as many for runs that could not be made."""
    return 2 * (2 * max(1, (nodes - 1).bit_length()) + 3)


def leaf_of(domains: Mapping[str, str]) -> str:
    return domains.get("leaf", domains.get("rack", ""))


def groups_of(test: GateTest, domains: Mapping[str, Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Return the groups that nodes test in at first: of the test's size at most, and alike. One node alone has none.

    Nodes behind one leaf and of one rack are side by side, so that halves of a group rarely part them.
    """
    scope = scope_of(test)
    apart: dict[str, list[str]] = {}
    for node in sorted(domains, key=lambda name: (leaf_of(domains[name]), domains[name].get("rack", ""), name)):
        home = {"leaf": leaf_of(domains[node]), "rack": domains[node].get("rack", "")}.get(scope, scope)
        if home:
            apart.setdefault(home, []).append(node)
    return [group for nodes in apart.values() for group in _alike(nodes, size_of(test)) if len(group) > 1]


def _alike(nodes: Sequence[str], most: int) -> Iterable[tuple[str, ...]]:
    count = -(-len(nodes) // most)
    for at in range(count):
        yield tuple(nodes[len(nodes) * at // count : len(nodes) * (at + 1) // count])


def verdict_on(node: str, found: Bisection, runs: Sequence[GroupRun]) -> Ended | None:
    """Return the verdict on the node whose gate tests; None while it is open.

    It passes once a group that it is in has, whoever made others fail.
    """
    if node in found.good and not any(node in group for group in found.between):
        low = {one for run in runs if run.passed is Passed.NO for one in run.nodes}
        others = sorted(low - found.good)
        return Ended(Verdict.PASS, f"suspected: {', '.join(others)}, or the way there" if others else "")
    if node in found.convicted:
        return Ended(Verdict.FAIL, f"fails with {', '.join(_failed_with(node, runs))}, which pass without it")
    if found.next:
        return None
    if joined := next((group for group in found.between if node in group), None):
        why = f"{', '.join(sorted(joined))} pass in halves and not together: what joins them, and no node, is suspected"
        return Ended(Verdict.UNJUDGED, why, incident=True)
    if any(run.passed is Passed.NO for run in runs):
        why = "it fails with its group, and nobody behind its leaf passes to tell whose fault that is"
        return Ended(Verdict.UNJUDGED, why, incident=not found.good)
    return Ended(Verdict.UNJUDGED, "its group could not run")


def _failed_with(node: str, runs: Iterable[GroupRun]) -> list[str]:
    pairs = [run.nodes for run in runs if len(run.nodes) == 2 and node in run.nodes and run.passed is Passed.NO]
    return sorted({other for pair in pairs for other in pair if other != node})
