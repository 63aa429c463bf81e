"""`ibtracert` of infiniband-diags 44, which asks the subnet for the way from one LID to another."""

from __future__ import annotations

from reconciler.lab.hardware.slowness import port_of
from reconciler.lab.hardware.tools.call import Call, Ran, done, failed
from reconciler.lab.pair_network import PairNetwork

_STEP_S = 0.01  # for each switch that is asked
_NO_ROUTE = (
    "ibwarn: [4711] mad_rpc: _do_madrpc failed; dport (Lid {lid})\n"
    "ibwarn: [4711] find_route: can't reach to/from ports\n"
    "ibwarn: [4711] get_route: can't find a route from src to dest\n"
    "ibtracert: iberror: failed: Failed to get route information\n"
)


def ibtracert(call: Call) -> Ran:
    """Trace the way between two LIDs over the adapter that `-C` names."""
    device, (source, target) = call.args[call.args.index("-C") + 1], map(int, call.args[-2:])
    network, rail = call.machine.network, port_of(device)
    if network is None or not network.traced or not 0 <= rail < network.fabric.rails:
        return failed(255, f"ibtracert: iberror: failed: Failed to open '{device}' port '0'\n")
    for lid in (source, target):
        if (port := network.port_with(lid)) is None or port[1] != rail:
            return failed(255, _NO_ROUTE.format(lid=lid), seconds=3.0)
    return done(_trace(network, source, target, rail), seconds=0.05)


def _trace(network: PairNetwork, source: int, target: int, rail: int) -> str:
    ends = [network.port_with(lid) for lid in (source, target)]
    one, other = (end[0] for end in ends if end is not None)
    text = f"From {_end(one, source, rail)}"
    switches = network.switches(one, other, rail)
    out = 1
    for at, switch in enumerate(switches):
        number = sum(map(ord, switch))
        into = network.port_to(switches[at - 1]) if at else source % 32 + 1
        text += (
            f'[{out}] -> switch port {{0x{0xB8CEF6 << 40 | number:016x}}}[{into}] lid {number}-{number} "{switch}"\n'
        )
        out = network.port_to(switches[at + 1]) if at + 1 < len(switches) else target % 32 + 1
    last = f'{{0x{0xA088C2 << 40 | target:016x}}}[1] lid {target}-{target} "{other} mlx5_{rail}"'
    return f"{text}[{out}] -> ca port {last}\nTo {_end(other, target, rail)}"


def _end(node: str, lid: int, rail: int) -> str:
    return f'ca {{0x{0xA088C2 << 40 | lid:016x}}} portnum 1 lid {lid}-{lid} "{node} mlx5_{rail}"\n'


def trace_script(call: Call, words: list[str]) -> Ran:
    """Trace both ways of each rail, as the script of the gate does."""
    text, told, seconds = "", "", 0.0
    for device, local, remote in zip(words[0::3], words[1::3], words[2::3], strict=True):
        for way, ends in (("there", (local, remote)), ("back", (remote, local))):
            ran = ibtracert(Call(call.machine, "ibtracert", ("-C", device, *ends)))
            text += f"{way} {device}\n{ran.result.stdout}"
            told += ran.result.stderr
            seconds += ran.seconds
    return failed(0, told, stdout=text, seconds=seconds)
