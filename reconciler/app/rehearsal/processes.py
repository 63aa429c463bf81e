"""Runs of a rehearsal in processes beside each other: each is a pure function of the input and a seed.

A process gets the input once. It holds no secret: what a rehearsal knows of keys is public.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Final

from reconciler.app.engine import Engine
from reconciler.app.rehearsal.inputs import RehearsalInput
from reconciler.app.rehearsal.run import RunResult, simulate
from reconciler.app.runtime import end_with_parent
from reconciler.model.errors import ReconcilerError

HELD: Final = 20_000  # nodes that all processes together hold, unless --jobs asks for more
WORTH: Final = 500  # nodes that change, in all runs together, from which on the start of a process pays
_given: list[RehearsalInput] = []  # in a process of the pool: what it simulates


class RunLost(ReconcilerError):
    """A process of a rehearsal has died."""


def default_jobs(changes: int, runs: int, nodes: int) -> int:
    """Return how many processes pay for so many nodes that change. Each holds all `nodes` of the fleet in memory."""
    if changes * runs < WORTH:
        return 1
    # macOS and the BSDs bind no process to cores.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, runs, HELD // max(1, nodes)))


def simulate_all(
    inputs: RehearsalInput, seeds: Sequence[int], starting: Callable[[int], None], jobs: int
) -> Iterator[RunResult]:
    """Yield the result of each seed, in their order. `starting` gets the number of each run, from 1."""
    if jobs == 1 or len(seeds) == 1:
        for number, seed in enumerate(seeds, start=1):
            starting(number)
            yield simulate(inputs, seed)
        return
    context = multiprocessing.get_context("spawn")  # the parent may have threads
    data = pickle.dumps(inputs, pickle.HIGHEST_PROTOCOL)
    with ProcessPoolExecutor(min(jobs, len(seeds)), context, initializer=_take, initargs=(data,)) as pool:
        runs = [pool.submit(_simulate, seed) for seed in seeds]
        try:
            for number, run in enumerate(runs, start=1):
                starting(number)
                yield run.result()
        except BrokenProcessPool:
            died = f"one of {min(jobs, len(seeds))} processes of the rehearsal has died"
            raise RunLost(f"{died}: where memory is short, use fewer --jobs") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def on_engine(
    inputs: RehearsalInput, seeds: Sequence[int], engine: Engine, told: Callable[[str], None]
) -> list[RunResult]:
    """Return the result of each seed, of runs on the workers of an engine. What none of them plays is played here."""
    data = zlib.compress(pickle.dumps(inputs, pickle.HIGHEST_PROTOCOL), 1)  # a scheduler holds one for each worker
    found = engine.run_on_workers([partial(pickle.dumps, (data, seed), pickle.HIGHEST_PROTOCOL) for seed in seeds])
    results = []
    for seed, one in zip(seeds, found, strict=True):
        if isinstance(one, str):
            told(f"seed {seed} is played here: {one}")
            results.append(simulate(inputs, seed))
        else:
            results.append(pickle.loads(one))  # noqa: S301 - whoever works for this scheduler runs code here anyway
    return results


def run_packed(data: bytes) -> bytes:
    """Play a run that was sent by `on_engine`, and return its result as it travels."""
    fleet, seed = pickle.loads(data)  # noqa: S301 - whoever may send tasks runs code here anyway
    inputs = pickle.loads(zlib.decompress(fleet))  # noqa: S301 - likewise
    return pickle.dumps(simulate(inputs, seed), pickle.HIGHEST_PROTOCOL)


def _take(data: bytes) -> None:
    end_with_parent()
    _given[:] = [pickle.loads(data)]  # noqa: S301 - our own parent wrote it


def _simulate(seed: int) -> RunResult:
    return simulate(_given[0], seed)
