"""Tests of the host that the gate runs: stress-ng, memtester, hpcc, iperf3, fio with verify, chronyc, lspci, perftest.

They print what the real programs print of a healthy machine, as far as it says something; figures differ a little
between machines. The gate's scripts are recognised by the program that they run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from reconciler.lab.hardware.host_network import interface
from reconciler.lab.hardware.slowness import Rail, port_of, rail
from reconciler.lab.hardware.tools import gpu_tests, mpi, nccl
from reconciler.lab.hardware.tools.call import EPOCH, Call, Ran, Tool, done, failed
from reconciler.lab.hardware.tools.ibtracert import ibtracert, trace_script
from reconciler.model.gate import CommandResult

_PATTERNS = (
    "Stuck Address", "Random Value", "Compare XOR", "Compare SUB", "Compare MUL", "Compare DIV", "Compare OR",
    "Compare AND", "Sequential Increment", "Solid Bits", "Block Sequential", "Checkerboard", "Bit Spread", "Bit Flip",
    "Walking Ones", "Walking Zeroes", "8-bit Writes", "16-bit Writes",
)  # fmt: skip
_RULE = "-" * 87
_IPERF3 = 2.9e9  # bytes a second


def memtester(call: Call) -> Ran:
    size, loops = int(call.args[0].rstrip("M")), int(call.args[1])
    head = (
        "memtester version 4.6.0 (64-bit)\nCopyright (C) 2001-2020 Charles Cazabon.\n"
        "Licensed under the GNU General Public License version 2 (only).\n\npagesize is 4096\n"
        f"want {size}MB ({size * 2**20} bytes)\ngot  {size}MB ({size * 2**20} bytes), trying mlock ...locked.\n"
    )
    body = "".join(f"  {name:<20}: ok\n" for name in _PATTERNS)
    text = "".join(f"Loop {at}/{loops}:\n{body}\n" for at in range(1, loops + 1))
    return done(f"{head}{text}Done.\n", seconds=1 + 0.15 * size * loops)


def chronyc(call: Call) -> Ran:
    if "--version" in call.args:
        return done("chronyc (chrony) version 4.3 (+READLINE +SECHASH +IPV6 -DEBUG)\n")
    offset = 0.0000215 * call.jitter("clock", 0.5)
    return done(
        f"0A000001,10.0.0.1,3,1795398821.171494321,{offset:.9f},0.000000019,0.000000231,0.012,0.002,0.146,"
        "0.000462290,0.000214580,64.2,Normal\n"
    )


def timedatectl(call: Call) -> Ran:
    """Tell of a clock that systemd-timesyncd sets."""
    if "--version" in call.args:
        return done("systemd 252 (252.39-1~deb12u1)\n+PAM +AUDIT +SELINUX default-hierarchy=unified\n")
    if "show" in call.args:
        return done("NTPSynchronized=yes\n")
    if "show-timesync" in call.args:
        at = datetime.fromtimestamp(EPOCH + call.machine.now - 30, UTC).strftime("%a %Y-%m-%d %H:%M:%S UTC")
        times = "".join(f" {name}Timestamp={at}," for name in ("Originate", "Receive", "Transmit", "Destination"))
        return done(
            "NTPMessage={ Leap=0, Version=4, Mode=4, Stratum=3, Precision=-25, RootDelay=462us, RootDispersion=215us, "
            f"Reference=0A000001,{times} Ignored=no, PacketCount=71, Jitter=12us }}\n"
        )
    cells = {
        "Server": "10.0.0.1 (10.0.0.1)", "Poll interval": "1min 4s (min: 32s; max 34min 8s)", "Leap": "normal",
        "Version": "4", "Stratum": "3", "Reference": "0A000001", "Precision": "1us (-25)",
        "Root distance": "0.446ms (max: 5s)", "Offset": f"+{21.5 * call.jitter('clock', 0.5):.0f}us", "Delay": "231us",
        "Jitter": "12us", "Packet count": "71", "Frequency": "+1.375ppm",
    }  # fmt: skip
    return done("".join(f"{name:>13}: {cell}\n" for name, cell in cells.items()))


def date(call: Call) -> Ran:
    return done(f"{int(EPOCH + call.machine.now)}\n")


def lspci(call: Call) -> Ran:
    """Show the links of GPUs, RDMA adapters and NVMe drives, each below a port of its own."""
    if "--version" in call.args:
        return done("lspci version 3.9.0\n")
    state = call.machine.state
    gpus = [
        _function(f"{gpu.pci.lower()[-12:]} 3D controller: NVIDIA Corporation Device 2330 (rev a1)", 32, 16,
                  int(gpu.cells.get("pcie_width", "16x").rstrip("x")))
        for gpu in call.visible_gpus
    ]  # fmt: skip
    nics, drives = [nic for nic in state.nics if nic.rdma], [drive for drive in state.drives if not drive.sata]
    others = [
        *_below_a_port(
            "0001", len(nics), "Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]", 32, 16
        ),
        *_below_a_port(
            "0002", len(drives), "Non-Volatile memory controller: Samsung PM9A3 (prog-if 02 [NVM Express])", 16, 4
        ),
    ]
    return done("".join([*gpus, *others]) or "\n", seconds=0.5)


def _below_a_port(segment: str, number: int, name: str, speed: int, lanes: int) -> list[str]:
    ports = []
    for at in range(number):
        bus = f"\tBus: primary=00, secondary={at + 1:02x}, subordinate={at + 1:02x}, sec-latency=0\n"
        port = _function(f"{segment}:00:{at:02x}.0 PCI bridge: Intel Corporation Device 352a", 32, 16, lanes, speed)
        ports.append(port.replace("\tCap", f"{bus}\tCap").replace("Endpoint", "Root Port (Slot-)"))
    return [*ports, *(_function(f"{segment}:{at + 1:02x}:00.0 {name}", speed, lanes, lanes) for at in range(number))]


def _rdma_ports(call: Call, _: Sequence[str]) -> Ran:
    """Tell of the RDMA ports and their state, where lspci shows their NICs."""
    nics = [nic for nic in call.machine.state.nics if nic.rdma]
    return done(
        "".join(
            f"{nic.name}/ports/1 /sys/devices/pci0001:00/0001:00:{at:02x}.0/0001:{at + 1:02x}:00.0 "
            f"{'4: ACTIVE | 5: LinkUp' if nic.up else '1: DOWN | 2: Polling'}\n"
            for at, nic in enumerate(nics)
        )
        + "end\n"
    )


def _function(title: str, able_speed: int, able_lanes: int, lanes: int, speed: int = 0) -> str:
    return (
        f"{title}\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
        f"\t\tLnkCap:\tPort #0, Speed {able_speed}GT/s, Width x{able_lanes}, ASPM not supported\n"
        f"\t\tLnkSta:\tSpeed {speed or able_speed}GT/s, Width x{lanes}\n\n"
    )


def _stress_ng(call: Call, words: Sequence[str]) -> Ran:
    workers, seconds, _, *stressors = words
    text = f"stress-ng: info:  [4711] setting to a {seconds} second run per stressor\n"
    text += f"stress-ng: info:  [4711] dispatching hogs: {', '.join(f'{workers} {name}' for name in stressors)}\n"
    text += f"stress-ng: info:  [4711] successful run completed in {float(seconds):.2f}s\n---\nsystem-info:\n"
    text += "      stress-ng-version: 0.15.06\n      run-by: root\n\nmetrics:\n"
    for name in stressors:
        speed = 48_000 * call.jitter(f"stress {name}", 0.01)
        text += f"    - stressor: {name}\n      bogo-ops: {speed * float(seconds):.0f}\n"
        text += f"      bogo-ops-per-second-real-time: {speed:.6f}\n      wall-clock-time: {float(seconds):.6f}\n\n"
    return done(f"{text}...\n", seconds=float(seconds) + 1)


def _hpcc(call: Call, words: Sequence[str]) -> Ran:
    lines = words[1].splitlines()
    order, rows, columns = lines[5], lines[10], lines[11]
    rule = "#" * 72
    valid = "Solution Validates: avg error less than 1.000000e-13 on all three arrays\nNode(s) with error 0\n"
    cells = {
        "Success": "1", "HPL_Tflops": f"{3.1 * call.jitter('hpl', 0.01):g}", "HPL_N": order, "HPL_nprow": rows,
        "HPL_npcol": columns, "CommWorldProcs": words[0], "MPIRandomAccess_Errors": "0",
        "StarSTREAM_Triad": f"{41.2 * call.jitter('stream', 0.01):g}",
        "SingleSTREAM_Triad": f"{58.4 * call.jitter('stream', 0.01):g}",
    }  # fmt: skip
    return done(
        f"# NUMA nodes: {call.machine.state.processors}\n{rule}\n"
        f"This is the DARPA/DOE HPC Challenge Benchmark version 1.5.0 October 2012\n{rule}\n{valid}{valid}"
        "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0062163 ...... PASSED\nBegin of Summary section.\n"
        + "".join(f"{name}={value}\n" for name, value in cells.items())
        + f"End of Summary section.\n{rule}\nEnd of HPC Challenge tests.\n\n{rule}\n",
        seconds=60.0,
    )


def iperf3(call: Call) -> Ran:
    if "-s" in call.args:
        return _server(call)
    options = dict(zip(call.args, call.args[1:], strict=False))
    return _iperf3(call, int(options["-t"]), int(options["-P"]), "-R" in call.args)


def _server(call: Call) -> Ran:
    """Serve until the gate's run ends, which the mark in the environment names."""
    if call.machine.network is not None:
        call.machine.network.serve(call.machine.name, call.environment.get("RECONCILER_GATE_RUN", ""))
    return done(seconds=1e6)


def _iperf3(call: Call, seconds: int, streams: int, reverse: bool) -> Ran:
    speed = _IPERF3 * call.jitter("iperf3", 0.02)
    return _iperf3_document(seconds, streams, int(reverse), _iperf3_way("", seconds, speed), streams)


def _iperf3_pair(call: Call, words: Sequence[str]) -> Ran:
    """Measure both ways at once with the server of another machine, through the lab's network."""
    options = dict(pairwise(words))
    network = call.machine.network
    ran = None if network is None else network.measure(call.machine.name, words[0])
    if ran is None or ran.there[0] is None or ran.back[0] is None:
        error = {"error": "unable to connect to server: Connection refused"}
        document = {"start": {"version": "iperf 3.12"}, "intervals": [], "end": {}, **error}
        return Ran(CommandResult(1, json.dumps(document, indent=1) + "\n"), 10.0)
    seconds, streams = int(options["-t"]), int(options["-P"])
    ways = {
        **_iperf3_way("", seconds, _IPERF3 * ran.there[0]),
        **_iperf3_way("_bidir_reverse", seconds, _IPERF3 * ran.back[0]),
    }
    return _iperf3_document(seconds, streams, 0, ways, 2 * streams)


def _iperf3_way(way: str, seconds: int, speed: float) -> dict[str, dict[str, float]]:
    moved = int(speed) * seconds
    whole = {"start": 0, "end": seconds, "seconds": seconds, "bytes": moved, "bits_per_second": 8 * moved / seconds}
    return {f"sum_sent{way}": {**whole, "retransmits": 3}, f"sum_received{way}": whole}


def _iperf3_document(
    seconds: int, streams: int, reverse: int, ways: Mapping[str, Mapping[str, float]], counted: int
) -> Ran:
    document = {
        "start": {
            "version": "iperf 3.12",
            "test_start": {"protocol": "TCP", "num_streams": streams, "duration": seconds, "reverse": reverse},
        },
        "intervals": [],
        "end": {"streams": [{}] * counted, **ways},
    }
    return done(json.dumps(document, indent=1) + "\n", seconds=seconds + 0.5)


def _verify(call: Call, words: Sequence[str]) -> Ran:
    moved = int(words[1]) * 2**20
    document = {
        "fio version": "fio-3.33",
        "jobs": [
            {
                "jobname": "verify", "error": 0, "job options": {"verify": "crc32c", "do_verify": "1"},
                "read": {"io_bytes": moved, "bw_bytes": int(5.9e9 * call.jitter("verify", 0.01))},
                "write": {"io_bytes": moved, "bw_bytes": int(3.4e9 * call.jitter("verify", 0.01))},
            }
        ],
    }  # fmt: skip
    return done(json.dumps(document, indent=1) + "\n", seconds=1 + 2 * moved / 3e9)


def ip(call: Call) -> Ran:
    """Show the address of an RDMA port, as `ip -j addr show dev NAME` of iproute2 5 and 6 does."""
    network, name = call.machine.network, call.args[-1]
    rails = [interface(nic) for nic in call.machine.state.nics if nic.rdma]
    if call.args[:-1] != ("-j", "addr", "show", "dev") or name not in rails or network is None:
        return failed(1, f'Device "{name}" does not exist.\n')
    address = network.address_of(call.machine.name)
    row = {"family": "inet", "local": address, "prefixlen": 16, "scope": "global", "label": name}
    document = [{"ifname": name, "operstate": "UP", "link_type": "infiniband", "addr_info": [row]}]
    return done(json.dumps(document) + "\n")


def perftest(call: Call) -> Ran:
    if "--version" in call.args:
        return failed(1, stdout="Version: 6.06\n")  # perftest 4.5 ends with 1 there
    options = dict(zip(call.args, call.args[1:], strict=False))
    device = options["-d"]
    leaves = call.args[-1] != "localhost"  # to a server: over the cable, through the leaf
    link = rail(call.machine.state, port_of(device)) if leaves else Rail()
    network = call.machine.network
    pace = link.pace if leaves or network is None else network.alone(call.machine.name, max(0, port_of(device)))
    return _perftest(call, options, pace, link)


def _perftest_pair(call: Call) -> Ran:
    """Measure one way of one rail with the server of another machine, through the lab's network."""
    options = dict(zip(call.args, call.args[1:], strict=False))
    network, port = call.machine.network, max(0, port_of(options["-d"]))
    ran = None if network is None else network.measure(call.machine.name, call.args[-1])
    paces = () if ran is None else ran.back if "read" in call.name else ran.there
    pace = paces[port] if port < len(paces) else None
    if pace is None:
        text = f"Couldn't connect to {call.args[-1]}:{options['-p']}\n Unable to init the socket connection\n"
        return Ran(CommandResult(1, "", text), 10.0)
    assert network is not None
    lids = [network.lid(node, port) for node in (call.machine.name, network.addresses[call.args[-1]])]
    addresses = "".join(
        f" {end} address: LID {lid:#04x} QPN 0x008a PSN 0xfffb6d RKey 0x238f86 VAddr 0x007dd5a3cfd000\n"
        for end, lid in zip(("local", "remote"), lids, strict=True)
    )
    return _perftest(call, options, pace, rail(call.machine.state, port), f"{addresses}{_RULE}\n")


def _perftest(call: Call, options: Mapping[str, str], pace: float, link: Rail, addresses: str = "") -> Ran:
    device, size, seconds = options["-d"], int(options["-s"]), float(options["-D"])
    if link.downs(call.machine.now + seconds) > link.downs(call.machine.now):
        # The words and the status of perftest 4.5 and 6.06 whose queue pair used up its retries.
        text = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n"
        return Ran(CommandResult(1, text), seconds)
    speed = 392.4 * pace * call.jitter(f"rail {device}", 0.003)
    rate = speed * 1000 / 8 / size
    way = "Read" if "read" in call.name else "Write"
    both = "Bidirectional " if "-b" in call.args else ""
    said, freed = _gpu_memory(call)
    text = (
        f" WARNING: BW peak won't be measured in this run.\n{said}{_RULE}\n"
        f"                    RDMA_{way} {both}BW Test\n"
        f" Dual-port       : OFF\t\tDevice         : {device}\n Link type       : IB\n{_RULE}\n{addresses}"
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        f" {size:<7}    {rate * seconds * 1e6:<10.0f}       0.00               {speed:<7.2f}\t\t     {rate:<7.6f}\n"
        f"{_RULE}\n{freed}"
    )
    return Ran(CommandResult(0, text), seconds + 2)


def _gpu_memory(call: Call) -> tuple[str, str]:
    """Return what perftest says of a GPU's memory before and after its test, as with --use_cuda."""
    gpu = next((word.partition("=")[2] for word in call.args if word.startswith("--use_cuda=")), None)
    if gpu is None:
        return "", ""
    return (
        f"initializing CUDA\nPicking device No. {gpu}\nallocated GPU buffer address at 00007f3dfa600000\n",
        "deallocating GPU buffer 00007f3dfa600000\ndestroying current CUDA Ctx\n",
    )


def shell(call: Call) -> Ran:
    """Run a script of the gate, `sh -c SCRIPT sh words...`; the lab has no shell for others."""
    match call.args:
        case ("-c", script, _, *words):
            pass
        case _:
            return failed(2, "sh: 0: the lab has no shell\n")
    if '"$tool" "$@" localhost' in script:
        return perftest(Call(call.machine, words[0], (*words[1:], "localhost")))
    if "Couldn.t connect to" in script:
        return _perftest_pair(Call(call.machine, words[0], tuple(words[1:])))
    if "serve ib_" in script:
        return _server(call)
    if "ibtracert -C" in script:
        return trace_script(call, words)
    if (ran := mpi.script(call, script, words)) is not None:
        return ran
    if "lspci -vvv" in script:
        return lspci(Call(call.machine, "lspci", ("-vvv", "-D")))
    if 'iperf3 -c "$@"' in script:
        return _iperf3_pair(call, words)
    if "iperf3 -s" in script:
        return iperf3(Call(call.machine, "iperf3", tuple(words[1:])))
    for pattern, run in _SCRIPTS.items():
        if re.search(pattern, script):
            return run(call, words)
    return failed(127, f"sh: 1: {script.split()[0] if script.split() else ''}: not found\n")


def _collective(call: Call, words: Sequence[str]) -> Ran:
    """Run a collective on this node, on which nothing is set for NCCL."""
    return nccl.TOOLS[words[0]](Call(call.machine, words[0], tuple(words[1:])))


_SCRIPTS = {
    "# setting ": _collective,
    r"\bstress-ng \$o": _stress_ng,
    r"hpccinf\.txt": _hpcc,
    r"fio --name=verify": _verify,
    r"class/infiniband/.*readlink": _rdma_ports,
    **gpu_tests.SCRIPTS,
}
TOOLS: Mapping[str, Tool] = {
    "memtester": memtester,
    "chronyc": chronyc,
    "timedatectl": timedatectl,
    "date": date,
    "ip": ip,
    "lspci": lspci,
    "iperf3": iperf3,
    "ib_write_bw": perftest,
    "ib_read_bw": perftest,
    "ibtracert": ibtracert,
    "sh": shell,
    **gpu_tests.TOOLS,
}
