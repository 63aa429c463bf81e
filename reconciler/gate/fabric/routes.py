"""Find which spine the flows of two nodes take over InfiniBand, as `ibtracert` of infiniband-diags tells it.

A subnet routes by destination, so all flows of a pair's rail take one way there and one back, until the subnet manager
writes its tables anew. Which LIDs the two ends have is in what perftest prints. With adaptive routing a flow takes
other spines, too, and over Ethernet nothing is told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from reconciler.gate.fabric.measured import rails_of
from reconciler.gate.fabric.results import Spines
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult

_TRACE: Final = """while [ $# -ge 3 ]; do
echo "there $1"; ibtracert -C "$1" "$2" "$3"; echo "back $1"; ibtracert -C "$1" "$3" "$2"; shift 3
done"""
_DEVICE = re.compile(r"\bDevice {1,12}: (\S{1,60}) *$", re.MULTILINE)
_INFINIBAND = re.compile(r"^ Link type {1,12}: IB *$", re.MULTILINE)
_ADDRESS = re.compile(r"^ *(local|remote) address: LID 0x([0-9a-f]{1,4}) ", re.MULTILINE)
_MARK = re.compile(r"^(there|back) (\S{1,60})\n", re.MULTILINE)
_END = r'ca \{0x[0-9a-f]{16}\} portnum \d{1,3} lid (\d{1,5})-(\d{1,5}) "[^\n]*"\n'
_TRACED = re.compile(r"From " + _END + r"((?:\[\d{1,3}\] -> [^\n]*\n){2,9})To " + _END + r"\s*")
_HOP = re.compile(
    r"\[(\d{1,3})\] -> (ca|switch) port \{(0x[0-9a-f]{16})\}\[(\d{1,3})\] lid \d{1,5}-\d{1,5} \"([^\n]*)\"\n"
)


class Ends(NamedTuple):
    """The LIDs of both ends of a rail: that of the node whose client ran, and that of its partner."""

    device: str
    local: int
    remote: int


class _Route(NamedTuple):
    """The spine of a flow, and the cables that join it to the switches below."""

    spine: str = ""
    cables: tuple[str, ...] = ()


_NONE: Final = _Route()


def ends_of(test: GateTest, outputs: Sequence[CommandResult]) -> tuple[Ends, ...]:
    """Return the ends of the rails that ran over InfiniBand, from what perftest printed on the client."""
    found: dict[str, Ends] = {}
    for text in (output.stdout for output in outputs):
        device, lids = _DEVICE.findall(text), dict(_ADDRESS.findall(text))
        if len(device) == 1 and _INFINIBAND.search(text) and lids.keys() == {"local", "remote"}:
            found[device[0]] = Ends(device[0], int(lids["local"], 16), int(lids["remote"], 16))
    return tuple(found[rail] for rail in rails_of(test) if rail in found)


def trace_command(ends: Sequence[Ends]) -> tuple[str, ...]:
    """Return the command that traces both ways of each rail, from the one node."""
    words = chain.from_iterable((one.device, str(one.local), str(one.remote)) for one in ends)
    return ("env", "LC_ALL=C", "sh", "-c", _TRACE, "sh", *words)


def spines_of(test: GateTest, ends: Sequence[Ends], printed: str) -> Spines:
    """Return the spines that the traces tell. A trace that breaks off, or is of other ends, tells nothing."""
    wanted = {("there", one.device): (one.local, one.remote) for one in ends}
    wanted |= {("back", one.device): (one.remote, one.local) for one in ends}
    _, *parts = _MARK.split(printed)
    found: dict[tuple[str, str], _Route] = {}
    for way, device, text in zip(parts[0::3], parts[1::3], parts[2::3], strict=True):
        key = way, device
        found[key] = _NONE if key in found or key not in wanted else _route(text, *wanted[key])
    there, back = ([found.get((way, rail), _NONE) for rail in rails_of(test)] for way in ("there", "back"))
    there, back = (routes if any(one.spine for one in routes) else [] for routes in (there, back))
    return Spines(
        tuple(one.spine for one in there),
        tuple(one.spine for one in back),
        tuple(one.cables for one in there),
        tuple(one.cables for one in back),
    )


def _route(text: str, source: int, target: int) -> _Route:
    """Return the switch in the middle of a trace, by its name and GUID; none where both ends are behind one leaf."""
    traced = _TRACED.fullmatch(text)
    if traced is None:
        return _NONE
    first, last, told, begin, end = traced.groups()
    if not (int(first) <= source <= int(last) and int(begin) <= target <= int(end)):
        return _NONE
    hops = _HOP.findall(told)
    if len(hops) != told.count("\n") or [hop[1] for hop in hops] != ["switch"] * (len(hops) - 1) + ["ca"]:
        return _NONE
    switches = hops[:-1]
    if len(switches) < 3 or len(switches) % 2 == 0:
        return _NONE
    at = len(switches) // 2
    (*_, below), (out, _, guid, into, name), (down, _, _, last_port, after) = switches[at - 1 : at + 2]
    # A cable is the same one both ways: the lower switch comes first.
    cables = f"{below} port {out}, {name} port {into}", f"{after} port {last_port}, {name} port {down}"
    return _Route(f"{name} {guid}", cables)
