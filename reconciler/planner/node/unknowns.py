"""Summarize why values and sources are not known, in the same words for all nodes that are silent for one reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from textwrap import shorten

from reconciler.model.desired import Desired
from reconciler.model.observed import Observed, Silent
from reconciler.model.vocab import NodeState, UnknownReason
from reconciler.planner.node import conditions as c
from reconciler.planner.node.conditions import Conditions

LENGTH = 200  # characters of a summary, about; `explain` has every value with its reason
_CAUSE = 120  # characters of one cause
_PART = re.compile(r"; (?=\S+ \(|(?:BMC|SSH|cluster) )")
_OF_A_VALUE = re.compile(r"\S+ \((.*)\)")  # "firmware.bmc (BMC unreachable)"
_NAMED = re.compile(r"(\S+) \(\S+\):? ?")  # "gpu-0001 (10.0.0.1:22): ..."
_SOCKET = re.compile(r" ?\('[^']*', \d+[^)]*\)")  # as in "Connect call failed ('10.0.0.1', 22)"

# When a source is asked again, and since when it has not been: each node has its own, and `incomplete` says it.
_TIMED = re.compile(
    r"; (?:not tried again before|it is not sent again|it goes to no other)\b.*"
    r"| at (?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\b|, asked for \S+?,",
    re.DOTALL,
)


def summarize(unknown: Mapping[str, str], desired: Desired) -> str:
    """Return one sentence about `unknown` (value -> why it is not known), which names each cause once."""
    roots = {what: [_without_node(root, desired) for root in _roots(why)] for what, why in unknown.items()}
    every = {root for found in roots.values() for root in found}
    causes: dict[str, dict[str, None]] = {}
    for what, found in roots.items():
        for root in found:
            # "SSH unreachable" and "SSH unreachable: connection refused" are one cause.
            longest = max((other for other in sorted(every) if f"{other}:".startswith(f"{root}:")), key=len)
            causes.setdefault(shorten(longest, _CAUSE, placeholder=" …"), {})[what] = None
    whole = _join(causes)
    return (
        whole if len(whole) <= LENGTH else _join({cause: _abbreviate(list(names)) for cause, names in causes.items()})
    )


def _join(causes: Mapping[str, Iterable[str]]) -> str:
    return "; ".join(f"{cause}: {', '.join(names)} not known" for cause, names in causes.items())


def _abbreviate(names: list[str]) -> list[str]:
    return names if len(names) <= 3 else [*names[:1], f"{names[1]} and {len(names) - 2} more"]


def _roots(why: str) -> list[str]:
    """Return the causes in a reason: "BMC timeout" for "firmware.bmc (BMC timeout); bios.A (BMC timeout)"."""
    parts = _PART.split(why)
    return list(dict.fromkeys(inner[1] if (inner := _OF_A_VALUE.fullmatch(part)) else part for part in parts))


def _without_node(reason: str, desired: Desired) -> str:
    """Remove the node's name, addresses and times, so that nodes with the same cause get the same words."""
    text = _NAMED.sub(lambda said: "" if said[1] == desired.node else said[0], reason)
    for address in (desired.endpoints.bmc, desired.endpoints.host):
        text = text.replace(address, "its address") if address else text
    text = _TIMED.sub("", text).replace(f" of {desired.node} ", " ")
    return _SOCKET.sub("", text).replace(": its address: ", ": ")


def incomplete(desired: Desired, observed: Observed, state: Conditions) -> tuple[str, ...]:
    """Return the configured sources that did not answer for no known reason, each with its failure."""
    found = []
    for name, reading in (("redfish", observed.hot), ("redfish inventory", observed.inventory), ("ssh", observed.host),
                          ("kubernetes", observed.member)):  # fmt: skip
        if isinstance(reading, Silent) and reading.reason not in (UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED):
            if name == "ssh" and c.HOST_UP not in state.unknown:
                continue  # powered off, booting, or known to be down
            found.append(f"{name}: {reading.reason}" + (f" ({reading.detail})" if reading.detail else ""))
    return tuple(found) if desired.state is NodeState.ACTIVE else ()
