"""Loads of GPUs and readings of links that the gate runs, in the words of the real programs.

gpu_burn and dcgmproftester with the samples of nvidia-smi beside them, mlxlink and the kernel's counters of RDMA ports,
AMD's amd-smi and rvs, a reference training, and a collective over two nodes by torchrun. A GPU that is lost is in none
of them; slow links slow the training, and so does its slowest GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from reconciler.gate.tools.link_counters import COUNTERS
from reconciler.lab.hardware.slowness import Rail, port_of, rail, under_load
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, cuda_error, done, failed, parse_options
from reconciler.model.gate import CommandResult

RAILS = 8
_PEAK = 481.0  # GB/s between the GPUs of a healthy node
_BETWEEN = 386.0  # GB/s between two nodes over all rails
_RATE = 400e9  # bits a second of a rail
_AROUND_S = 38  # an H100 of 80 GB was filled, and emptied, by gpu_burn in this time


def _samples(call: Call, seconds: float) -> str:
    """Return what nvidia-smi prints each two seconds: GPUs at work, and idle before and after that, as an H100 was."""
    rows = []
    for round_of in ("idle", *["load"] * max(2, int(seconds // 2)), "idle", "idle"):
        for gpu in call.visible_gpus:
            load = under_load(call.machine.state, gpu)
            if round_of == "idle":
                rows.append(f"{gpu.index}, {load.heat * 0.5:.0f}, 75.2, 345, 0\n")
            else:
                share = call.jitter(f"heat {gpu.index}", 0.02)
                rows.append(f"{gpu.index}, {load.heat * share:.0f}, {load.power * share:.1f}, {load.clock:.0f}, 100\n")
    return "--- samples\n" + "".join(rows) + f"--- end of {len(rows)} samples\n"


def _speeds(call: Call, peak: float) -> list[float]:
    return [
        peak * under_load(call.machine.state, gpu).pace * call.jitter(f"speed {gpu.index}", 0.01)
        for gpu in call.visible_gpus
    ]


def gpu_burn(call: Call, words: Sequence[str]) -> Ran:
    seconds, speeds = float(words[-1]), _speeds(call, 352_000.0 if "-tc" in words else 51_000.0)
    if (error := cuda_error(call.machine)) is not None:
        text = f"Burning for {seconds:g} seconds.\nCouldn't init CUDA: Error (gpu_burn-drv.cpp:304): {error}\n"
        return done(text + _samples(call, 4), seconds=4)
    text = f"Using compare file: compare.ptx\nBurning for {seconds:g} seconds.\n"
    for percent in (50, 100):
        work = " - ".join(f"{100 * percent} ({speed:.0f} Gflop/s)" for speed in speeds)
        errors = " - ".join("0" for _ in speeds)
        heat = " - ".join(f"{under_load(call.machine.state, gpu).heat:.0f} C" for gpu in call.visible_gpus)
        text += f"{percent:.1f}%  proc'd: {work}   errors: {errors}   temps: {heat} \n"
    text += f"Killing processes with SIGTERM (soft kill)\ndone\n\nTested {len(speeds)} GPUs:\n"
    text += "".join(f"\tGPU {at}: OK\n" for at in range(len(speeds)))
    return done(text + _samples(call, seconds), seconds=seconds + _AROUND_S)


def dcgmproftester(call: Call, words: Sequence[str]) -> Ran:
    seconds = int(words[1])
    if (error := cuda_error(call.machine)) is not None:
        return failed(255, stdout=f"CacheManager Init Failed. Error: -29 ({error})\n" + _samples(call, 4), seconds=4)
    lines = ["Skipping CreateDcgmGroups() since DCGM validation is disabled"]
    for _ in range(seconds):
        lines += [
            f"Worker {at}:0[1004]: TensorEngineActive: generated ???, dcgm 0.000 ({speed:.1f} gflops)"
            for at, speed in enumerate(_speeds(call, 640_000.0))
        ]
    lines.append("Skipping UnwatchFields() since DCGM validation is disabled\n")
    return done("\n".join(lines) + _samples(call, seconds), seconds=seconds + 5)


def link_counters(call: Call, words: Sequence[str]) -> Ran:
    """Print the counters, wait, and print them again."""
    seconds, readings = float(words[0]), []
    for at in (call.machine.now, call.machine.now + seconds):
        lines = []
        for port in range(RAILS):
            link = rail(call.machine.state, port)
            garbled, downs = link.errors(at), link.downs(at)
            counts = {
                "symbol_error": garbled, "port_rcv_errors": garbled // 3, "local_link_integrity_errors": garbled // 40,
                "link_downed": downs, "link_error_recovery": downs,
            }  # fmt: skip
            folder = f"/sys/class/infiniband/mlx5_{port}/ports/1/counters"
            lines += [f"{folder}/{name} {counts.get(name, 0)}\n" for name in COUNTERS]
        readings.append("".join(lines) + "--- read\n")
    return done("".join(readings), seconds=seconds)


def mlxlink(call: Call) -> Ran:
    options = dict(zip(call.args, call.args[1:], strict=False))
    device = options.get("-d", "")
    if port_of(device) not in range(RAILS):
        return failed(1, f"-E- Failed to open device: {device}\n")
    cleared = call.machine.state.ports_cleared
    if "--pc" in call.args:
        cleared[device] = call.machine.now
        return done("\nClearing Counters ...\n")
    counters = _physical(rail(call.machine.state, port_of(device)), call.machine.now, cleared.get(device, 0.0))
    sections: dict[str, dict[str, str]] = {
        "Operational Info": {"State": "Active", "Physical state": "LinkUp", "Speed": "IB-NDR", "Width": "4x"},
        "Troubleshooting Info": {"Status Opcode": "0", "Recommendation": "No issue was observed"},
        "Tool Information": {"Firmware Version": "28.43.2026", "MFT Version": "mft 4.30.1-8"},
        "Module Info": {"Temperature [C]": "49 [-10..80]"},
        "Physical Counters and BER Info": counters,
    }  # fmt: skip
    if "-e" in call.args:
        sections["EYE Opening Info"] = {"Last FOM": "112,118,109,121"}
    text = "".join(
        f"\n{title}\n{'-' * len(title)}\n" + "".join(f"{name:<35}: {value}\n" for name, value in lines.items())
        for title, lines in sections.items()
    )
    return done(text + "\n", seconds=2)


def _clear_and_wait(call: Call, words: Sequence[str]) -> Ran:
    """Clear the counters of the rails, and wait for the interval."""
    for device in words[2:]:
        call.machine.state.ports_cleared[device] = call.machine.now
    return done(seconds=float(words[0]))


def _physical(link: Rail, now: float, cleared: float) -> dict[str, str]:
    """Return what the firmware counted since it was cleared, as the link does when it comes up, but for its losses."""
    up = (now - link.since) % link.every_s if link.downs(now) else now
    span = min(up, now - cleared)
    garbled = min(link.errors(now) - link.errors(max(cleared, link.since)), int(link.garbled * span))
    downs = link.downs(now) - (link.downs(cleared) if cleared > link.since else 0)
    return {
        "Time Since Last Clear [Min]": f"{span / 60 + (not link.every_s and not cleared):.1f}",
        "Effective Physical Errors": str(garbled),
        "Effective Physical BER": f"{garbled / (_RATE * span):.0E}" if garbled else "15E-255",
        "Raw Physical Errors Per Lane": f"{91 * garbled},12,44,9" if garbled else "31,12,44,9",
        "Link Down Counter": str(downs),
        "Link Error Recovery Counter": "0",
        "Raw Physical BER": "4E-6" if garbled else "3E-10",
    }


def amd_smi(call: Call) -> Ran:
    if "version" in call.args:
        return done("AMDSMI Tool: 25.3.0+ede62f2 | AMDSMI Library version: 25.3.0 | ROCm version: 6.4.0\n")
    gpus = [
        {
            "gpu": gpu.index,
            "power": {"socket_power": {"value": 745, "unit": "W"}, "throttle_status": "N/A"},
            "temperature": {"edge": "N/A", "hotspot": {"value": 69, "unit": "C"}, "mem": {"value": 50, "unit": "C"}},
            "pcie": {"width": 16, "speed": {"value": 32, "unit": "GT/s"}, "replay_count": 0},
            "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": gpu.ecc_uncorrectable},
        }
        for gpu in call.visible_gpus
    ]
    return done(json.dumps(gpus, indent=4) + "\n", seconds=1)


def rvs(call: Call) -> Ran:
    lines, now = [], 2455.5475
    for action, target in (("gst-639Tflops-4K4K8K-rand-fp16", 639_000), ("gst-1215Tflops-4K4K8K-rand-fp8", 1_215_000)):
        lines += [f"[RESULT] [{now:13.6f}] Action name :{action}", f"[RESULT] [{now:13.6f}] Module name :gst"]
        for gpu, speed in zip(call.visible_gpus, _speeds(call, target * 1.15), strict=True):
            now += 22
            head = f"[RESULT] [{now:13.6f}] [{action}] [GPU:: {10_000 + gpu.index}]"
            lines += [f"{head} Start of GPU ramp up", f"{head} GFLOPS {speed:.0f}"]
            lines.append(
                f"{head} GFLOPS {speed:.0f} Target GFLOPS: {target} met: {'TRUE' if speed >= target else 'FALSE'}"
            )
    return done("\n".join(lines) + "\n", seconds=now - 2455)


def reference_train(call: Call) -> Ran:
    """Train for a few steps, of which collectives are a part: the share of the peak that the GPUs reach."""
    if (error := cuda_error(call.machine)) is not None:
        return Ran(CommandResult(1, "", f"RuntimeError: {error}\n"), 4.0)
    limit = call.machine.fault("low_nccl")
    links = min(1.0, float(limit["busbw"]) / _PEAK) if limit else 1.0
    slowest = min(under_load(call.machine.state, gpu).pace for gpu in call.visible_gpus)
    mfu = 0.42 * call.jitter("mfu", 0.005) / (0.7 / slowest + 0.3 / links)
    return done(f"step 20\nmfu {mfu:.4f} ratio\nstep_ms {160 / mfu:.1f} ms\nhash 5f2c9e\n", seconds=300)


def torchrun(call: Call) -> Ran:
    """Run a collective of a site over two nodes: rank 0 serves until its run of the gate ends, the other prints."""
    options, _ = parse_options(call.args, {"--node-rank": "rank", "--node_rank": "rank", "--master-addr": "master",
                                           "--master_addr": "master"})  # fmt: skip
    if (error := cuda_error(call.machine)) is not None:
        return Ran(CommandResult(1, "", f"RuntimeError: {error}\n"), 4.0)
    network = call.machine.network
    if options.get("rank") == "0":
        if network is not None:
            network.serve(call.machine.name, call.environment.get("RECONCILER_GATE_RUN", ""))
        return done(seconds=1e6)
    master = options.get("master", "")
    ran = None if network is None else network.measure(call.machine.name, master)
    paces = [] if ran is None else [pace for pace in (*ran.there, *ran.back) if pace is not None]
    if ran is None or len(paces) < len(ran.there) + len(ran.back):
        told = f"The client socket has timed out after 60000ms while trying to connect to ({master}, 29500)."
        return Ran(CommandResult(1, "", f"torch.distributed.DistNetworkError: {told}\n"), 60.0)
    limit = call.machine.fault("low_nccl")
    busbw = min(_BETWEEN * min(paces), float(limit["busbw"]) if limit else _BETWEEN)
    return done(f"busbw {busbw * call.jitter('torchrun', 0.003):.2f} GB/s\n", seconds=45)


SCRIPTS: Mapping[str, Callable[[Call, Sequence[str]], Ran]] = {
    r"\./gpu_burn ": gpu_burn,
    r'"dcgmproftester\$1"': dcgmproftester,
    r"/sys/class/infiniband/": link_counters,
    r"mlxlink .* --pc": _clear_and_wait,
}
TOOLS: Mapping[str, Tool] = {
    "mlxlink": mlxlink, "amd-smi": amd_smi, "rvs": rvs, "reference-train": reference_train, "torchrun": torchrun,
}  # fmt: skip
