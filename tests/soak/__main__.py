"""`python -m tests.soak 10m`: run the state machine for that long on all cores; stop at the first broken invariant.

Then run the loop on the wire, for 200 passes or the given number.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from reconciler.model.units import format_duration, parse_duration
from tests.soak import service
from tests.soak.play import Played, play

EXAMPLES, STEPS = 5, 200  # of one seed
PASSES = 200
DISK_EVERY = 10  # every so many seeds one keeps its ledger on disk


def one(seed: int) -> Played:
    return play(seed, EXAMPLES, STEPS, on_disk=seed % DISK_EVERY == 0)


def _length(text: str) -> float:
    return 0.0 if text == "0" else parse_duration(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Invariants of a small fleet, for long.")
    parser.add_argument(
        "length", nargs="?", default="10m", type=_length, help="such as 90s, 10m or 8h; 0: only the wire"
    )
    parser.add_argument("--seed", type=int, help="the first one, after which they count up; random if left out")
    parser.add_argument("--once", action="store_true", help="this seed alone")
    parser.add_argument("--passes", type=int, default=PASSES, help="of the loop on the wire; 0 = leave it out")
    given = parser.parse_args()
    first = secrets.randbelow(10**6) if given.seed is None else given.seed
    if given.once:
        return _tell(one(first))
    code = soak(first, given.length) if given.length else 0
    return code or (service.soak(given.passes, first) if given.passes else 0)


def soak(first: int, length_s: float) -> int:
    """Begin new seeds until the time is over, then finish the running ones."""
    cores = os.cpu_count() or 1
    print(f"for {format_duration(length_s)} on {cores} cores, from seed {first}", flush=True)
    began, upcoming = time.monotonic(), first
    examples = steps = runs = 0
    playing: set[Future[Played]] = set()
    with ProcessPoolExecutor(cores) as pool:
        while True:
            while len(playing) < cores and time.monotonic() - began < length_s:
                playing.add(pool.submit(one, upcoming))
                upcoming += 1
            if not playing:
                break
            done, playing = wait(playing, return_when=FIRST_COMPLETED)
            for played in (future.result() for future in done):
                examples, steps, runs = examples + played.examples, steps + played.steps, runs + played.runs
                if code := _tell(played):
                    pool.shutdown(cancel_futures=True)
                    return code
    took = format_duration(time.monotonic() - began)
    print(f"{examples} examples, {steps} steps, {runs} runs of the reconciler in {took}: nothing broke")
    return 0


def _tell(played: Played) -> int:
    if not played.broken:
        print(f"seed {played.seed}: {played.examples} examples, {played.steps} steps, {played.runs} runs", flush=True)
        return 0
    print(played.story, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
