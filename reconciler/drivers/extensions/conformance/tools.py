"""Checks of a gate tool of an extension: what proves nothing measures nothing, and an option runs no command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final

from reconciler.drivers.extensions.api import Measured, Trial, UnreadableOutputError
from reconciler.drivers.extensions.conformance.bench import API, STRANGE, WORDS, Bench, called, parsed_by_shell
from reconciler.drivers.probes import Probe, WrongAnswerError, expect
from reconciler.drivers.ssh.facts.fact import excerpt
from reconciler.model.conformance import Check
from reconciler.model.desired import DesiredInventory
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import CommandResult

_HARMLESS: Final = "harmless"
_HOSTILE: Final = "x'y\"z;$(reconciler)`reconciler`|&>w"
_DEAD: Final = re.compile(
    r"""'[^']*'|"(?:[^"\\$`]|\\.)*"|\\.""", re.DOTALL
)  # of a line of sh: what is quoted so that it does nothing


class _Each(dict[str, str]):
    """Options that have every name, all with one value."""

    def __init__(self, value: str) -> None:
        super().__init__(option=value)
        self._value = value

    def __getitem__(self, _name: str) -> str:
        return self._value

    def get(self, _name: str, _default: Any = None) -> str:
        return self._value

    def __contains__(self, _name: object) -> bool:
        return True


def _trial(options: Mapping[str, str]) -> Trial:
    return Trial("gpu-a001", options, {one.name: 8 for one in fields(DesiredInventory)})


async def _command(bench: Bench) -> None:
    try:
        line = bench.found.command(_trial({}))
    except Exception as error:  # code of others may raise anything
        said = f"{type(error).__name__}: {excerpt(str(error))}"
        raise DriverError(Failure.UNSUPPORTED, f"without options it raises {said}") from error
    expect(isinstance(line, str) and bool(line.strip()), f"it gives no command line, but {str(line)[:80]!r}")
    await parsed_by_shell(line)


async def _options(bench: Bench) -> None:
    """Try an option with quotes and commands in it: it is refused, or one word in which nothing acts."""

    def line(value: str) -> Any:
        return called("command", partial(bench.found.command, _trial(_Each(value))), Exception)

    hostile, harmless = line(_HOSTILE), line(_HARMLESS)
    if hostile is None or hostile == harmless:
        return
    acts = "(reconciler)" in _DEAD.sub("", hostile)
    whole = harmless is None or _words(hostile) == [word.replace(_HARMLESS, _HOSTILE) for word in _words(harmless)]
    expect(
        whole and not acts,
        f"an option with quotes and $(...) in it becomes {hostile[:120]!r}: raise for it, or use shlex.quote",
    )


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:  # a quote that nothing closes
        return [line]


def _measured(bench: Bench, text: str) -> Measured | None:
    shown = f"read({excerpt(text, 40)!r})"
    output = CommandResult(bench.found.statuses[0], text)
    found = called(shown, partial(bench.found.read, _trial({}), output), UnreadableOutputError)
    expect(found is None or isinstance(found, Measured), f"{shown} is a {type(found).__name__}, not Measured")
    return found if isinstance(found, Measured) else None


async def _nothing(bench: Bench) -> None:
    for text in WORDS:
        if (found := _measured(bench, text)) is not None and found.metrics:
            metrics = str(dict(found.metrics))[:80]
            raise WrongAnswerError(f"{excerpt(text, 40)!r} measures {metrics}: raise UnreadableOutputError")


async def _strange(bench: Bench) -> None:
    for text in STRANGE:
        _measured(bench, text)


TOOL: Final[tuple[Probe[Bench], ...]] = (
    (Check("tool-command", f"{API}: GateTool.command", "a test must give options"), _command),
    (Check("tool-options", f"{API}: Trial.options", "a spec runs commands of its own as root"), _options),
    (Check("tool-proves-nothing", f"{API}: GateTool.read", "a bad node passes"), _nothing),
    (Check("tool-strange-output", f"{API}: GateTool.read", "a gate waits, or ends with an error"), _strange),
)
