"""Judge `lspci -vvv`: PCIe links have the width and speed that they can have, and ACS is off.

A GPU has to reach what it can do itself: a slot with fewer lanes is the wrong one. An idle one slows its link down, so
its speed is judged only where args.load names a program that runs meanwhile. With args.parts, NICs and drives have to
reach what both ends of their links can do, as many slots have fewer lanes by design. So have the uplinks of switches
above the parts that are judged: all below share them. NICs are counted as the inventory does, by RDMA ports that are
up, but for those of functions that left the bus: one for management, or a spare port, makes up for none of them.
Bridges with ACS on send copies between GPUs through the root complex. Metrics: width and speed_gts of GPUs, and with
nic_, drive_ or uplink_ before them those of the others, each the worst, by address, and spread; and acs_on, the number
of functions that redirect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from reconciler.gate.tools.common import ResultBuilder, Tool, expected_gpus, note_if_killed, number
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import listed
from reconciler.model.gate_tools import LINKED
from reconciler.model.observed import Answered, Observed

KNOWN = ("3",)
WARM_UP = "sleep 20"  # gpu_burn fills the memory of an H200 for 7 s before it computes
_RUN = (
    f'if [ -n "$1" ]; then sh -c "$1" >load.txt 2>&1 & p=$!; {WARM_UP}; fi; '
    "lspci -vvv -D; r=$?; "
    'if [ -n "$p" ] && ! kill -0 "$p" 2>/dev/null; then echo "the load ended early" >&2; exit 70; fi; exit $r'
)
# Each RDMA port, its device and its state, as sysfs has them of every driver. The link of a virtual function is that of
# its physical one, and a subfunction is a folder below its function. Soft-RoCE has no function.
_PORTS = (
    'for p in /sys/class/infiniband/*/ports/*; do [ -d "$p" ] || continue; d=${p%/ports/*}/device; '
    '[ ! -e "$d/physfn" ] || d=$d/physfn; '
    'echo "${p#/sys/class/infiniband/} $(readlink -f "$d") $(cat "$p/state") | $(cat "$p/phys_state")"; done; echo end'
)
_PORT = re.compile(r"(?P<name>[\w.-]{1,64}/ports/[0-9]{1,3}) (?P<device>\S*) (?P<state>[^|]*) \| (?P<physical>[^|]*)")
_ADDRESS = re.compile(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)")
_BLOCK = re.compile(r"^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)$", re.MULTILINE)
_GPU = re.compile(r"^(?:3D controller|VGA compatible controller|Processing accelerators|Display controller)"
                  r"(?: \[\w+\])?: (?:NVIDIA|Advanced Micro Devices)")  # fmt: skip
_OTHERS: Mapping[str, re.Pattern[str]] = {
    "nic": re.compile(r"^(?:Infiniband|Ethernet|Network) controller(?: \[\w+\])?: "),
    "drive": re.compile(r"^Non-Volatile memory controller(?: \[\w+\])?: "),
}
_CAP = re.compile(r"^\t\tLnkCap:.*\bSpeed ([0-9.]+)GT/s, Width x([0-9]+)\b", re.MULTILINE)
_STA = re.compile(r"^\t\tLnkSta:.*\bSpeed ([0-9.]+)GT/s(?: \(\w+\))?, Width x([0-9]+)\b", re.MULTILINE)
_BELOW = re.compile(r"^\tBus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2}),", re.MULTILINE)
_UPLINK = re.compile(r"^\tCapabilities: \[[0-9a-f]+\] Express \(v[0-9]\) Upstream Port", re.MULTILINE)
_ACS = re.compile(r"^\t\tACSCtl:.*\bReqRedir\+", re.MULTILINE)
# Virtual functions have the link capability of the physical one, and zeroes for its state (SR-IOV 1.1, 3.5).
_NO_STA = re.compile(r"^\t\tLnkSta:.*\bSpeed unknown(?: \(\w+\))?, Width x0\b", re.MULTILINE)
_DEAD = "\t!!! Unknown header type"  # which a function has that answers no read of its configuration
_LOAD_ENDED = 70
_Functions = Mapping[str, str]  # address -> what lspci says of it, without the first line


class _Link(NamedTuple):
    """Lanes and GT/s: what this end can do, and what is."""

    able_speed: float
    able_width: float
    speed: float
    width: float


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    links = (("env", "LC_ALL=C", "lspci", "--version"), in_scratch(_RUN, str(test.args.get("load", ""))))
    return (*links, ("env", "LC_ALL=C", "sh", "-c", _PORTS, "sh")) if "nic" in _asked(test) else links


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    said, output, *listing = outputs
    if any(note_if_killed(builder, each) for each in outputs):
        return builder.result(test, outputs)
    version = re.fullmatch(r"lspci version (\S{1,20})\n", said.stdout)
    builder.version = version[1] if version else ""
    builder.check_version(test, KNOWN)
    if output.exit_status != 0 or said.exit_status != 0:
        why = "args.load ended before the links were read" if output.exit_status == _LOAD_ENDED else ""
        builder.error(f"exit status {said.exit_status} and {output.exit_status} {why}".strip())
        return builder.result(test, outputs)
    parts = _BLOCK.split(output.stdout)
    gpus = expected_gpus(builder, desired)
    names, functions = (
        dict(zip(parts[1::3], parts[2::3], strict=True)),
        dict(zip(parts[1::3], parts[3::3], strict=True)),
    )
    found = {at: functions[at] for at, what in names.items() if _GPU.match(what)}
    if gpus is not None and len(found) != gpus:
        builder.fail(f"{len(found)} GPUs are on the PCIe bus, {gpus} are declared")
    if not output.stdout.endswith("\n\n") or len(set(parts[1::3])) != len(parts[1::3]):
        builder.error("the output breaks off, or holds more than one run")
    if "<access denied>" in output.stdout:
        builder.error("lspci may not read the capabilities: it needs the rights of root")
    elif found:
        _judge_gpus(builder, test, found)
        _judge_others(builder, test, _declared(desired, observed, _rdma_ports(listing, functions)), names, functions)
    builder.metrics["acs_on"] = float(len(_ACS.findall(output.stdout)))
    return builder.result(test, outputs)


def _judge_gpus(builder: ResultBuilder, test: GateTest, found: _Functions) -> None:
    widths, speeds = dict[str, float](), dict[str, float]()
    for at, body in found.items():
        link = _link(body)
        if link is None:
            builder.unjudged(f"{at}: no capability and state of one link")
            continue
        widths[_part(at)], speeds[_part(at)] = link.width, link.speed
        if link.width < link.able_width:
            builder.fail(f"{at}: width x{link.width:g} of x{link.able_width:g}")
        if link.speed < link.able_speed and test.args.get("load"):
            builder.fail(f"{at}: {link.speed:g} GT/s under load, of {link.able_speed:g}")
    if len(widths) == len(found):
        builder.parts("width", widths)
        builder.parts("speed_gts", speeds)


class _Declared(NamedTuple):
    """How many parts the inventory declares, how many drives the host has that are no NVMe drives, and its RDMA ports.

    `ports`: whether each is up, as `_rdma_ports` returns it.
    """

    nic: int | None
    drive: int | None
    disks: int | None
    ports: Sequence[bool | None] | None


def _asked(test: GateTest) -> list[str]:
    return [kind for kind in _OTHERS if f"{kind}s" in listed(test.args.get("parts", ""))]


def _rdma_ports(listing: Sequence[CommandResult], functions: _Functions) -> list[bool | None] | None:
    """Return whether each RDMA port is up and its function on the bus; None where not each is told of.

    None for a port: the host does not tell its state.
    """
    if len(listing) != 1 or listing[0].exit_status != 0 or not listing[0].stdout.endswith("end\n"):
        return None
    lines = listing[0].stdout.splitlines()[:-1]
    ports = [port for line in lines if (port := _PORT.fullmatch(line))]
    if len({port["name"] for port in ports}) != len(lines):
        return None
    there = {at if at.count(":") == 2 else f"0000:{at}" for at, body in functions.items() if not _left_the_bus(body)}
    return [_is_up(port) if set(_ADDRESS.findall(port["device"])[-1:]) <= there else False for port in ports]


def _is_up(port: re.Match[str]) -> bool | None:
    known = port["state"] and port["physical"]
    return (port["state"], port["physical"]) == ("4: ACTIVE", "5: LinkUp") if known else None


def _left_the_bus(body: str) -> bool:
    """Return whether a function tells of no link though it has one. Adapters inside a processor have none."""
    return _link(body) is None and (_DEAD in body or _CAP.search(body) is not None)


def _declared(desired: Desired, observed: Observed, ports: Sequence[bool | None] | None) -> _Declared:
    disks = observed.host.value.disks if isinstance(observed.host, Answered) else None
    nics, drives = (getattr(desired.profile.inventory, LINKED[part]) for part in ("nics", "drives"))
    others = None if disks is None else len({disk.serial for disk in disks if disk.serial})
    return _Declared(nics, drives, others, ports)


def _judge_others(
    builder: ResultBuilder, test: GateTest, inventory: _Declared, names: Mapping[str, str], functions: _Functions
) -> None:
    """Judge NICs and drives where the test asks for them, and the uplinks above all that is judged."""
    asked = _asked(test)
    above = {at[: -len("10:00.0")] + bus[1]: at for at, body in functions.items() if (bus := _BELOW.search(body))}
    judged = [at for at, what in names.items() if _GPU.match(what)]
    for kind in asked:
        # Virtual functions, and adapters inside a processor, have no link.
        linked = [at for at, what in names.items() if _OTHERS[kind].match(what) and _link(functions[at])]
        if _are_there(builder, kind, linked, inventory) and _are_readable(builder, kind, names, functions):
            _judge_both_ends(builder, kind, linked, above, functions)
            judged += linked
    if asked:
        uplinks = sorted({at for part in judged for at in _way_up(part, above) if _UPLINK.search(functions[at])})
        _judge_both_ends(builder, "uplink", uplinks, above, functions)


def _are_there(builder: ResultBuilder, kind: str, linked: Sequence[str], inventory: _Declared) -> bool:
    """Return whether as many have a link as are declared."""
    declared = inventory.nic if kind == "nic" else inventory.drive
    if declared is None:
        builder.unjudged(f"HardwareProfile.inventory does not declare how many {kind}s must have a link")
    elif kind == "nic":
        return _ports_are_there(builder, linked, declared, inventory.ports)
    else:
        return _drives_are_there(builder, linked, declared, inventory.disks)
    return False


def _ports_are_there(
    builder: ResultBuilder, linked: Sequence[str], declared: int, ports: Sequence[bool | None] | None
) -> bool:
    """Return whether as many RDMA ports are up. A host that has none may lack the driver, which is no fault."""
    if ports is None:
        builder.error("the host does not tell which NICs have RDMA ports")
        return False
    up, silent = ports.count(True), ports.count(None)
    if linked and not ports:
        builder.unjudged(f"the host has no RDMA ports, {declared} are declared: has it a driver of its NICs?")
    elif up >= declared:
        return True
    elif up + silent >= declared:
        builder.unjudged(f"{silent} of {len(ports)} RDMA ports tell no state, {declared} that are up are declared")
    else:
        builder.fail(f"{up} of {len(ports)} RDMA ports are up and on the PCIe bus, {declared} are declared")
    return False


def _drives_are_there(builder: ResultBuilder, linked: Sequence[str], declared: int, disks: int | None) -> bool:
    """Return whether as many have a link. The drives that a BMC lists may be SATA or SAS ones, too."""
    if len(linked) + (disks or 0) >= declared:
        return True
    if disks == 0:
        builder.fail(f"{len(linked)} drives have a PCIe link, {declared} are declared")
    else:
        others = "the host does not tell of others" if disks is None else f"{disks} are SATA or SAS drives"
        builder.unjudged(f"{len(linked)} drives have a PCIe link and {others}, {declared} are declared")
    return False


def _are_readable(builder: ResultBuilder, kind: str, names: Mapping[str, str], functions: _Functions) -> bool:
    """Return whether each that may have a link tells of it: one that is not declared may have lost its own."""
    silent = [
        at
        for at, what in names.items()
        if _OTHERS[kind].match(what) and _left_the_bus(functions[at]) and not _NO_STA.search(functions[at])
    ]
    for at in silent:
        builder.unjudged(f"{kind} {at}: no capability and state of one link")
    return not silent


def _way_up(at: str, above: Mapping[str, str]) -> Iterator[str]:
    """Yield the bridges above a function, the nearest first."""
    seen = set[str]()
    while (bridge := above.get(at.rpartition(":")[0])) is not None and bridge not in seen:
        yield bridge
        seen.add(bridge)
        at = bridge


def _judge_both_ends(
    builder: ResultBuilder, kind: str, found: Sequence[str], above: Mapping[str, str], functions: _Functions
) -> None:
    links = {at: link for at in found if (link := _link(functions[at])) is not None}
    if len(links) < len(found):
        builder.unjudged(f"{kind}: no capability and state of one link")
        return
    for at, link in links.items():
        bridge = above.get(at.rpartition(":")[0])
        upper = link if bridge is None else _link(functions[bridge]) or link
        width, speed = min(link.able_width, upper.able_width), min(link.able_speed, upper.able_speed)
        if link.width < width:
            builder.fail(f"{kind} {at}: width x{link.width:g} of x{width:g}")
        if link.speed < speed:
            builder.fail(f"{kind} {at}: {link.speed:g} GT/s of {speed:g}")
    if links:
        builder.parts(f"{kind}_width", {_part(at): link.width for at, link in links.items()})
        builder.parts(f"{kind}_speed_gts", {_part(at): link.speed for at, link in links.items()})


def _part(at: str) -> str:
    return at.replace(":", "-")


def _link(body: str) -> _Link | None:
    """Return the one link of a function; None where there is none, or it can't be read."""
    able, runs = _CAP.findall(body), _STA.findall(body)
    cells = [number(cell) for cell in (*able[0], *runs[0])] if len(able) == len(runs) == 1 else []
    known = [cell for cell in cells if cell is not None]
    return _Link(*known) if len(known) == 4 else None


TOOL = Tool(_commands, _judge)
