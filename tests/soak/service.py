"""Run `reconciler run` on the wire for many passes with faults in its lab, to find leaks of memory, files or sessions.

Every few passes it prints resident memory, open files, open BMC sessions, and the actions so far. Memory is flat when
the second half of the passes needs no more than the first.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from reconciler.lab import control
from reconciler.lab.process import lab_process

NODES, TIME_SCALE = 12, 60.0
INTERVAL_S = 120.0  # of the lab's time
FAULTS = ("host_hung", "xid_79", "ecc_errors", "bmc_503", "ssh_refused", "power_ignored")
EVERY = 10  # passes, between the lines that are printed
GROWTH = 0.05  # that still counts as flat: allocators keep their peak
WARM = 0.25  # share of the passes that open sessions and load modules first


@dataclass(frozen=True, slots=True)
class Sample:
    passes: int
    rss_mib: float
    files: int
    actions: int
    served: int


def soak(passes: int, seed: int) -> int:
    """Return 0 when memory stayed flat and all nodes are in service at the end, else 1."""
    print(f"the loop on the wire: {NODES} nodes, {passes} passes, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="reconciler-soak-") as directory:
        lab = Path(directory) / "lab"
        words = ("--nodes", str(NODES), "--time-scale", str(TIME_SCALE), "--seed", str(seed))
        with lab_process(lab, *words), _service(lab) as (process, url):
            samples = list(_play(process, url, lab, passes, random.Random(seed)))
    return _verdict(samples)


@contextmanager
def _service(lab: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start the service; yield its process and the URL of its metrics."""
    log = lab / "run.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "reconciler", "run", str(lab / "fleet-spec"), "--endpoints",
                str(lab / "endpoints.json"), "--listen", "127.0.0.1:0", "--log", "json", "--interval",
                f"{INTERVAL_S:.0f}s",
            ],
            stdin=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
    try:
        yield process, _listening(log, process)
        process.terminate()
        if process.wait(30) != 0:
            raise RuntimeError(f"it ended with {process.returncode}: {log.read_text()[-2000:]}")
    finally:
        if process.poll() is None:
            process.kill()


def _listening(log: Path, process: subprocess.Popen[bytes]) -> str:
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if '"event": "listening"' in line:
                return str(json.loads(line)["message"]).removeprefix("status at ")
        time.sleep(0.1)
    raise RuntimeError(f"it did not start: {log.read_text()[-2000:]}")


def _play(
    process: subprocess.Popen[bytes], url: str, lab: Path, passes: int, chance: random.Random
) -> Iterator[Sample]:
    said = done = 0
    while done < passes:
        time.sleep(INTERVAL_S / TIME_SCALE)
        metrics = _metrics(url)
        done = int(metrics.get("reconciler_pass_duration_seconds_count", 0))
        if metrics["reconciler_stopped"]:
            _see_to_it(lab)
        if done and done < passes * 0.9:  # no faults at the end, so that all nodes can recover
            _disturb(lab, chance)
        elif done:
            for name in control.read_state(lab)["nodes"]:
                control.clear_fault(lab, name, None)
        if done >= said + EVERY:
            said = done
            yield _told(_sample(process, metrics, done))
    for _ in range(120):  # wait for the last remediations
        metrics = _metrics(url)
        if metrics.get("served", 0) == NODES:
            break
        time.sleep(1.0)
    yield _told(_sample(process, metrics, done))


def _see_to_it(lab: Path) -> None:
    """Repair everything and release the storm brake, which waits for an operator after many faults."""
    for name in control.read_state(lab)["nodes"]:
        control.clear_fault(lab, name, None)
    words = ("resume", str(lab / "fleet-spec"), "--endpoints", str(lab / "endpoints.json"))
    subprocess.run([sys.executable, "-m", "reconciler", *words], check=True, stdout=subprocess.DEVNULL)
    print("the storm brake was set; a person mended what was broken, and lifted it", flush=True)


def _disturb(lab: Path, chance: random.Random) -> None:
    """Inject a random fault and repair another."""
    names = sorted(control.read_state(lab)["nodes"])
    control.clear_fault(lab, chance.choice(names), None)
    if chance.random() < 0.3:
        control.inject_fault(lab, chance.choice(names), chance.choice(FAULTS), {"times": 1})


def _metrics(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {"actions": 0.0, "served": 0.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "reconciler_actions_total":
                found["actions"] += sample.value
            elif sample.name == "reconciler_nodes" and sample.labels["status"] == "converged":
                found["served"] += sample.value
            elif not sample.labels:
                found[sample.name] = sample.value
    return found


def _sample(process: subprocess.Popen[bytes], metrics: dict[str, float], passes: int) -> Sample:
    files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    rss = metrics["process_resident_memory_bytes"] / 2**20
    return Sample(passes, rss, files, int(metrics["actions"]), int(metrics["served"]))


def _told(sample: Sample) -> Sample:
    print(
        f"pass {sample.passes:>4}: {sample.rss_mib:6.1f} MiB, {sample.files:>3} files open, "
        f"{sample.actions:>4} actions, {sample.served} of {NODES} nodes as specified",
        flush=True,
    )  # fmt: skip
    return sample


def _verdict(samples: list[Sample]) -> int:
    warm = [one for one in samples if one.passes >= samples[-1].passes * WARM]
    half = len(warm) // 2
    before, after = max(one.rss_mib for one in warm[:half]), max(one.rss_mib for one in warm[half:])
    files = max(one.files for one in warm[half:]) - max(one.files for one in warm[:half])
    flat = after <= before * (1 + GROWTH) and files <= NODES
    print(f"memory: at most {before:.1f} MiB, later {after:.1f}: {'flat' if flat else 'IT GROWS'}")
    return 0 if flat else 1
