"""Cohorts: a node against its peers.

A node fails by its peers when both figures of the bar hold: it is below their median by a share, and by a modified
z-score. One alone says little: where all peers are nearly equal, half a per cent is a huge score. Under LEAST_PEERS
there is no cohort, and `min` and `max` alone decide; so they do where a group was halved, which makes it faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from reconciler.model.desired import Cohort, Desired, GateTest, Peers
from reconciler.model.gate import Certificate, Peerless, TestResult, Verdict
from reconciler.model.gate_arguments import GROUP
from reconciler.model.gate_tools import TOOLS
from reconciler.model.observed import Observed, Silent
from reconciler.model.reference import REFERENCE_FORMAT, Distribution, Reference, hardware_of
from reconciler.model.results import COUNTS, NODES

LEAST_PEERS: Final = 10
SHOWN: Final = 5  # nodes that a sentence names
_DRIVER: Final = "-driver."
NORMAL: Final = 0.6745  # of a normal distribution, the MAD is this share of the standard deviation


def distribution(values: Sequence[float]) -> Distribution:
    """Return the figures of at least one value. The fifth percentile is interpolated."""
    ordered = sorted(values)
    middle = median(ordered)
    at = 0.05 * (len(ordered) - 1)
    low, high = ordered[int(at)], ordered[min(int(at) + 1, len(ordered) - 1)]
    p5 = low + (high - low) * (at - int(at))
    return Distribution(len(ordered), middle, median([abs(value - middle) for value in ordered]), p5)


def peers_in(cohort: Cohort | None, tool_version: str) -> Peers | None:
    """Return the peers that measured with the same version of the tool, if there are enough of them."""
    peers = None if cohort is None else _peers(cohort, tool_version)
    return peers if peers is not None and peers.n >= LEAST_PEERS else None


def _peers(cohort: Cohort, tool_version: str) -> Peers | None:
    """Return the peers with this version and driver, else those of whom no driver is told, of earlier references."""
    known = {peers.tool_version: peers for peers in cohort.peers}
    return known.get(tool_version) or known.get(tool_version.partition(_DRIVER)[0])


def with_driver(result: TestResult, desired: Desired, observed: Observed) -> TestResult:
    """Return what GPUs measured with their driver in the version of the tool, where the image does not tell which.

    Where it does, those with the same image have the same driver, or differ from the spec.
    """
    image, host = desired.profile.image, observed.host
    told = image is not None and "driver" in image.contents
    driver = None if isinstance(host, Silent) else host.value.driver
    if told or not driver or not result.tool_version or result.tool not in TOOLS or TOOLS[result.tool].counts != "gpus":
        return result
    return replace(result, tool_version=f"{result.tool_version}{_DRIVER}{driver}")


def limit(cohort: Cohort | None, tool_version: str) -> float | None:
    """Return the value below which both figures of the bar hold; None where there is no cohort."""
    peers = peers_in(cohort, tool_version)
    if cohort is None or peers is None:
        return None
    return min(peers.median - cohort.below * abs(peers.median), peers.median - cohort.modified_z * peers.mad / NORMAL)


def against_peers(cohort: Cohort | None, tool_version: str, value: float) -> str:
    """Return in what a value fails by its peers; "" when it does not."""
    least, peers = limit(cohort, tool_version), peers_in(cohort, tool_version)
    if least is None or peers is None or value >= least:
        return ""
    share = (peers.median - value) / (abs(peers.median) or 1.0)
    score = f"modified z -{NORMAL * (peers.median - value) / peers.mad:.1f}" if peers.mad else "they don't differ"
    return f"{value:g} is {share:.1%} below the median {peers.median:g} of its {peers.n} peers ({score})"


def notes(test: GateTest, result: TestResult | None) -> tuple[str, ...]:
    """Return a sentence for each bar by peers that does not count, since there are too few."""
    if result is None:
        return ()
    said = []
    for bar in test.thresholds:
        if bar.cohort is not None and not is_whole(test.args, result.metrics):
            how = f"it was measured with {result.metrics[NODES]:g} nodes in place of {test.args[GROUP]}"
            said.append(f"{test.name}: {bar.metric}: min and max alone decide, as {how}")
        elif bar.cohort is not None and peers_in(bar.cohort, result.tool_version) is None:
            count = too_few(bar.cohort, result.tool_version, test.tool)
            said.append(f"{test.name}: {bar.metric}: min and max alone decide, as there are {count}")
    return tuple(said)


def too_few(cohort: Cohort, tool_version: str, tool: str) -> str:
    """Return how many peers there are, and why so few: others have another version or other settings."""
    found = _peers(cohort, tool_version)
    count = f"{found.n if found else 0} peers with {tool} {tool_version}".rstrip()
    others = [peers for peers in cohort.peers if peers.tool_version != tool_version]
    most = max(others, key=lambda peers: peers.n, default=None)
    why = "-conf. is what its nodes set for NCCL" if "-conf." in tool_version else ""
    told = "; ".join(filter(None, (f"{most.n} have {most.tool_version}" if most else "", why)))
    return f"{count} ({told})" if told else count


def without_peers(nodes: Iterable[tuple[Desired, Certificate | None]]) -> tuple[Peerless, ...]:
    """Return each reason for which a bar by peers does not count on certified nodes, with these nodes."""
    found: dict[str, list[str]] = {}
    by_peers: dict[int, list[GateTest]] = {}  # by the id of an Acceptance, which equal nodes share
    for desired, certificate in nodes:
        acceptance = desired.profile.acceptance
        if acceptance is None or certificate is None or certificate.adopted:
            continue
        if id(acceptance) not in by_peers:
            by_peers[id(acceptance)] = [t for t in acceptance.tests if any(b.cohort is not None for b in t.thresholds)]
        tests = by_peers[id(acceptance)]
        results = {result.test: result for result in certificate.results} if tests else {}
        for said in (said for test in tests for said in notes(test, results.get(test.name))):
            found.setdefault(said, []).append(desired.node)
    return tuple([Peerless(said, tuple(names)) for said, names in found.items()])


def peerless_sentence(one: Peerless) -> str:
    more = f" and {len(one.nodes) - SHOWN} more" if len(one.nodes) > SHOWN else ""
    return f"{one.why}: {', '.join(one.nodes[:SHOWN])}{more}"


def is_whole(args: Mapping[str, object], metrics: Mapping[str, object]) -> bool:
    """Return whether a test was measured with as many nodes as it asks for: half a group measures something else."""
    return GROUP not in args or metrics.get(NODES) in (None, args[GROUP])  # a command may call a metric so, too


def references(certified: Iterable[tuple[Desired, Certificate]]) -> list[Reference]:
    """Return a reference for each group of peers: what their tests measured that passed.

    Certificates without tests, and those of another image than is desired, count for nothing.
    """
    values: defaultdict[tuple[str, str, str, str], defaultdict[str, list[float]]]
    values = defaultdict(lambda: defaultdict(list))
    tests: dict[tuple[str, str, str, str], GateTest] = {}
    for desired, certificate in certified:
        acceptance, image = desired.profile.acceptance, desired.profile.image
        sha256 = "" if image is None else image.sha256
        if acceptance is None or certificate.adopted or (image and certificate.binding.image_sha256 != sha256):
            continue
        hardware = hardware_of(desired.profile.inventory)
        declared = {test.name: test for phase in acceptance.phases for test in phase.tests}
        for result in certificate.results:
            test = declared.get(result.test)
            if test is None or result.verdict is not Verdict.PASS or result.tool != test.tool:
                continue
            if not is_whole(test.args, result.metrics):
                continue
            key = hardware, sha256, _canonical(test), result.tool_version
            tests[key] = test
            for metric, value in result.metrics.items():
                if metric not in COUNTS:
                    values[key][metric].append(value)
    return [_reference(key, tests[key], values[key]) for key in sorted(values)]


def _canonical(test: GateTest) -> str:
    return repr((test.name, test.tool, sorted(test.args.items())))


def _reference(key: tuple[str, str, str, str], test: GateTest, values: dict[str, list[float]]) -> Reference:
    hardware, image, _, version = key
    metrics = {name: distribution(values[name]) for name in sorted(values)}
    return Reference(
        REFERENCE_FORMAT, hardware, image, test.name, test.tool, version, dict(sorted(test.args.items())), metrics
    )
