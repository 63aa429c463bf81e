"""Open MPI 4.1 over several machines: what its plm_rsh_agent is told, its daemons, and what the program prints.

The words are those of mpirun 4.1.4 of Debian 12. Its run ends with what the machines measure whose daemons have joined
it by then. A daemon runs until whoever started it ends it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from zlib import crc32

from reconciler.lab.hardware import host_network
from reconciler.lab.hardware.slowness import port_of
from reconciler.lab.hardware.tools import nccl
from reconciler.lab.hardware.tools.call import Call, Ran, done, failed
from reconciler.lab.pair_network import Launched, PairNetwork
from reconciler.model.gate import CommandResult

_BETWEEN = {"MI300X": 330.0, "H100": 386.0, "H200": 388.0, "B200": 392.0, "A100": 190.0}  # all_reduce over rails, GB/s
_NO_NETWORK = (
    "--------------------------------------------------------------------------\n"
    "None of the TCP networks specified to be included for out-of-band communications\ncould be found:\n\n"
    "  Value given: {}\n\nPlease revise the specification and try again.\n"
)
_LOST = (
    "--------------------------------------------------------------------------\n"
    "ORTE was unable to reliably start one or more daemons.\n"
)


def script(call: Call, text: str, words: Sequence[str]) -> Ran | None:
    """Run a script of the gate that starts Open MPI or a daemon of it; None for another one."""
    network = call.machine.network
    if '/told/"$1"-' in text:
        return done("" if network is None else _told(network, words[0]))
    if words[1:2] == ["orted"]:
        return failed(1, _LOST) if network is None else _daemon(call, network, words)
    if words[2:3] == ["mpirun"]:
        return failed(1, _LOST) if network is None else _mpirun(call, network, words)
    return None


def _jobid(name: str) -> str:
    return str(crc32(name.encode()))


def _told(network: PairNetwork, name: str) -> str:
    launched = network.launched.get(name)
    if launched is None:
        return ""
    job, count = _jobid(name), launched.nodes
    first = network.address_of(launched.members[0])
    return "".join(
        f'{name}-{at}  orted -mca orte_leave_session_attached "1" -mca ess "env" -mca ess_base_jobid "{job}" '
        f'-mca ess_base_vpid {at} -mca ess_base_num_procs "{count}" -mca orte_node_regex "vm,{name}-[1:1-{count - 1}]'
        f'@0({count})" -mca orte_hnp_uri "{job}.0;tcp://{first}:34511" -mca plm "rsh" \n'
        for at in range(1, count)
    )


def _limit(call: Call) -> float:
    fault = call.machine.fault("low_nccl")
    return float(fault["busbw"]) if fault else inf


def _daemon(call: Call, network: PairNetwork, words: Sequence[str]) -> Ran:
    options = {words[at + 1]: words[at + 2] for at, word in enumerate(words[:-2]) if word == "-mca"}
    for name, launched in network.launched.items():
        if _jobid(name) == options["ess_base_jobid"]:
            launched.members[int(options["ess_base_vpid"])] = call.machine.name
            launched.reach = min(launched.reach, _limit(call))
            return done(seconds=1e6)
    return failed(1, "[orted] unable to reach its mpirun\n")


def _mpirun(call: Call, network: PairNetwork, words: Sequence[str]) -> Ran:
    interface = words[words.index("btl_tcp_if_include") + 1]
    if interface not in [host_network.interface(nic) for nic in call.machine.state.nics if nic.rdma]:
        return failed(1, _NO_NETWORK.format(interface))
    hosts = words[words.index("-H") + 1].split(",")
    name = hosts[1].rpartition("-")[0]
    launched = Launched(call.environment.get("RECONCILER_GATE_RUN", ""), len(hosts), {0: call.machine.name})
    network.launched[name] = launched
    at = next(at for at, word in enumerate(words) if word.endswith("_perf"))
    set_ = dict(word.split("=", 1) for word in words[:at] if re.match(r"NCCL_\w+=", word))
    program = Call(call.machine, words[at], tuple(words[at + 1 :]), environment=set_)
    collective = words[at].removesuffix("_perf")
    ranks = int(words[words.index("-N") + 1])

    def at_end() -> CommandResult:
        network.launched.pop(name, None)
        nodes = tuple(launched.members[place] for place in sorted(launched.members))
        rails = {port_of(rail.strip("=")) for rail in set_.get("NCCL_IB_HCA", "").split(",") if rail}
        pace = network.together(nodes, rails) if len(nodes) == launched.nodes else None
        if pace is None:
            return CommandResult(1, "", _LOST)
        peak = next((value for name, value in _BETWEEN.items() if name in call.machine.state.gpus[0].name), 100.0)
        return nccl.perf(collective, program, nccl.Over(nodes, ranks, min(peak * pace, launched.reach))).result

    alone = nccl.perf(collective, program, nccl.Over((call.machine.name,), ranks))

    def waits() -> bool:
        return name in network.launched and len(launched.members) < launched.nodes

    return Ran(CommandResult(-1, ""), alone.seconds + 2.0, at_end, waits)
