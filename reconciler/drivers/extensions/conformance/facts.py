"""Checks of facts and signals of an extension."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import Final

from reconciler.drivers.extensions.api import Unreadable
from reconciler.drivers.extensions.conformance.bench import API, STRANGE, Bench, called, parsed_by_shell
from reconciler.drivers.probes import Probe, WrongAnswerError, expect
from reconciler.drivers.ssh.facts.extended import LONGEST, fact
from reconciler.drivers.ssh.facts.fact import excerpt
from reconciler.model.conformance import Check
from reconciler.model.errors import DriverError, Failure
from reconciler.model.fact_framing import FactRequest, MalformedAnswer, build_program, parse_answer
from reconciler.model.gate import CommandResult


async def _shell(bench: Bench) -> None:
    await parsed_by_shell(bench.found.command)


async def _silence(bench: Bench) -> None:
    for text in ("", "\n"):
        value = called(f"parse({text!r})", partial(bench.found.parse, CommandResult(0, text)), Unreadable)
        expect(value is None, f"where nothing was printed the value is {value!r}: raise Unreadable")


async def _strange(bench: Bench) -> None:
    for text in STRANGE:
        shown = f"parse({excerpt(text, 40)!r})"
        value = called(shown, partial(bench.found.parse, CommandResult(0, text)), Unreadable)
        expect(value is None or isinstance(value, str), f"{shown} is a {type(value).__name__}, not text")


async def _here(bench: Bench) -> None:
    """Run the command as on a node: in the facts program, under its own deadline."""
    found, nonce = bench.found, secrets.token_hex(16)
    asked = fact(bench.offered.name, found.command, found.parse, found.timeout_s)
    program = build_program((FactRequest(asked.name, asked.command, asked.timeout_s),), nonce)
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec("sh", "-s", stdin=pipe, stdout=pipe, stderr=null)
    printed, _ = await process.communicate(program.encode())
    try:
        answers = parse_answer(printed, nonce)
    except MalformedAnswer as error:
        raise WrongAnswerError(f"the facts program does not end: {error}") from None
    read = asked.read(answers)
    if read.value is None:
        raise DriverError(Failure.UNSUPPORTED, next(iter(read.notes.values())))
    whole = found.parse(answers[asked.name])
    expect(whole == read.value, f"{whole[:80]!r} is not one line of at most {LONGEST} characters that can be printed")


async def _reads(bench: Bench) -> None:
    if others := [name for name in bench.found.reads if name not in bench.facts]:
        raise DriverError(Failure.UNSUPPORTED, f"the Fleet must name another package, for {', '.join(others)}")


async def _judge(bench: Bench) -> None:
    """A judge may raise: the signals are unknown then. What it yields must be what it lists, each time the same."""

    def judged(text: str) -> object:
        return list(bench.found.judge(dict.fromkeys(bench.found.reads, text)))

    for text in dict.fromkeys(excerpt(one, LONGEST) for one in STRANGE):
        shown = f"judge of {text[:40]!r}"
        first, second = (called(shown, partial(judged, text), Exception) for _ in range(2))
        expect(first == second, f"{shown} yields {str(first)[:80]}, and the second time {str(second)[:80]}")
        for pair in first or ():
            fits = isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(one, str) for one in pair)
            expect(fits, f"{shown} yields {str(pair)[:80]}, which is no pair of name and evidence")
            expect(pair[0] in bench.found.names, f"{shown} raises {pair[0]!r}, which it does not list")


FACT: Final[tuple[Probe[Bench], ...]] = (
    (Check("fact-shell", f"{API}: HostFact.command, POSIX sh", "the fact is unknown"), _shell),
    (Check("fact-silence", f"{API}: HostFact.parse", "what was not read heals a node"), _silence),
    (Check("fact-strange-output", f"{API}: HostFact.parse", "a pass waits, or nobody learns why"), _strange),
)
HERE: Final[Probe[Bench]] = (
    Check("fact-here", f"{API}: HostFact.command", "the fact is unknown on machines as this one"),
    _here,
)
SIGNALS: Final[tuple[Probe[Bench], ...]] = (
    (Check("signal-facts", f"{API}: HealthSignals.reads", "the package does not work alone"), _reads),
    (Check("signal-judge", f"{API}: HealthSignals.judge, names", "the signals are unknown, or come and go"), _judge),
)
