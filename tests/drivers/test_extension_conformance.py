"""Extensions of other authors that err: refused by the field that does not fit, or found by `conformance extension`."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Collection
from itertools import count
from typing import Any, cast

import pytest

from reconciler.drivers.extensions import (
    ForgeConnector,
    GateTool,
    HealthSignals,
    HostFact,
    InstallerServer,
    Measured,
    Notifier,
    Trial,
    Unreadable,
    UnreadableOutputError,
    connected,
)
from reconciler.drivers.extensions.conformance import bench, check_extension
from reconciler.drivers.extensions.fit import ExtensionRefused, misfit
from reconciler.drivers.extensions.load import Offered
from reconciler.model.forge import Forge
from reconciler.model.gate import CommandResult


async def _send(*_: object) -> None:
    """Take whatever it is given."""


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (HostFact(1, "uname", str), ""),
        (HostFact(1, cast("Any", 5), str), "command=5 is no command line"),
        (HostFact(1, "  ", str), "command='  ' is no command line"),
        (HostFact(1, "printf '\0'", str), r"command=.* is no command line"),
        (HostFact(1, "uname", cast("Any", None)), "parse=None is no function"),
        (HostFact(1, "uname", str, cast("Any", "5")), "timeout_s='5' is no number of seconds"),
        (HostFact(1, "uname", str, float("nan")), "timeout_s=nan is no number of seconds"),
        (HostFact(1, "uname", str, 3600), "timeout_s=3600 is no number of seconds"),
        (HealthSignals(1, ("a",), ("b",), lambda _: ()), ""),
        (HealthSignals(1, cast("Any", "raid"), ("b",), lambda _: ()), "names='raid' is no tuple of names"),
        (HealthSignals(1, ("a",), (), lambda _: ()), r"reads=\(\) is no tuple of names"),
        (HealthSignals(1, ("a b",), ("b",), lambda _: ()), r"names=\('a b',\) is no tuple of names"),
        (HealthSignals(1, ("a",), ("b",), cast("Any", lambda: ())), "judge does not take 1 argument"),
        (GateTool(1, lambda _: "", cast("Any", lambda _: None)), "read does not take 2 arguments"),
        (GateTool(1, cast("Any", "openssl speed"), cast("Any", max)), "command='openssl speed' is no function"),
        (Notifier(1, _send), ""),
        (Notifier(1, cast("Any", lambda _: None)), "send does not take 2 arguments"),
        (InstallerServer(1, cast("Any", None)), "connect=None is no function"),
        (ForgeConnector(1, cast("Any", lambda _a, _b: None)), "connect does not take 4 arguments"),
    ],
)
def test_each_field_that_does_not_fit_is_named(found: Any, why: str) -> None:
    said = misfit(found, type(found))
    assert re.match(why, said) if why else said == "", said


def test_what_connects_is_asked_for_all_calls_of_its_port() -> None:
    class Halfway:
        async def pull(self, number: int) -> None: ...

    def crash() -> None:
        raise KeyError("the token")

    with pytest.raises(ExtensionRefused, match=r"a Halfway, which lacks open_pulls, .* of Forge"):
        connected("the forge", Halfway, Forge)
    with pytest.raises(ExtensionRefused, match=r"^the forge: connect failed: KeyError; ask its author$"):
        connected("the forge", crash, Forge)


def results(found: Any, *, here: bool = False, facts: Collection[str] = ("state",)) -> dict[str, tuple[str, str]]:
    report = asyncio.run(check_extension(Offered(type(found), "state", lambda: found), facts, here=here))
    return {one.check.name: (one.result.value, one.detail) for one in report.outcomes}


def wrong(found: Any, **more: Any) -> dict[str, str]:
    return {name: detail for name, (result, detail) in results(found, **more).items() if result == "fail"}


def one_word(answer: CommandResult) -> str:
    if not re.fullmatch(r"[A-Za-z]+\n", answer.stdout):
        raise Unreadable("this is no word")
    return answer.stdout.strip()


def test_a_fact_that_keeps_the_contract_is_read_here_as_on_a_node() -> None:
    found = results(HostFact(1, "echo well", one_word), here=True)
    assert {result for result, _ in found.values()} == {"pass"}, found
    assert results(HostFact(1, "echo well", one_word))["fact-here"] == ("not tried", "needs --here")
    absent = results(HostFact(1, "no-such-tool", one_word), here=True)["fact-here"]
    assert (absent[0], "no-such-tool" in absent[1]) == ("not offered", True)
    hangs = results(HostFact(1, "exec sleep 30", one_word, 1), here=True)["fact-here"]
    assert (hangs[0], "did not end in time" in hangs[1]) == ("not offered", True)


@pytest.mark.parametrize(
    ("found", "names", "said"),
    [
        (HostFact(1, "echo 'well", one_word), {"fact-shell"}, "the shell can't read"),
        (HostFact(1, "true", lambda _: "well"), {"fact-silence"}, "nothing was printed the value is 'well': raise"),
        (HostFact(1, "true", lambda a: a.stdout.split()[0]), {"fact-silence", "fact-strange-output"}, "IndexError"),
        (HostFact(1, "true", cast("Any", lambda a: one_word(a).split())), {"fact-strange-output"}, "is a list"),
        (HealthSignals(1, ("a",), ("state",), lambda _: [("b", "x")]), {"signal-judge"}, "raises 'b', which"),
        (HealthSignals(1, ("a",), ("state",), cast("Any", lambda _: ["a"])), {"signal-judge"}, "no pair of name"),
        (GateTool(1, lambda _: "true 'x", lambda *_: Measured({})), {"tool-command"}, "the shell can't read"),
        (GateTool(1, lambda _: "true", lambda *_: Measured({"x": 1.0})), {"tool-proves-nothing"}, "measures {'x'"),
        (
            GateTool(1, lambda _: "true", lambda _, output: Measured({"x": float(output.stdout)})),
            {"tool-proves-nothing", "tool-strange-output"},
            "ValueError",
        ),
    ],
)  # fmt: skip
def test_what_breaks_the_contract_fails_by_its_name(found: Any, names: set[str], said: str) -> None:
    failed = wrong(found)
    assert set(failed) == names, failed
    assert said in " ".join(failed.values()), failed


def test_a_judge_that_remembers_or_needs_other_facts_is_told() -> None:
    calls = count()
    signals = HealthSignals(1, ("a",), ("other",), lambda _: [("a", str(next(calls)))])
    found = results(signals)
    assert found["signal-facts"] == ("not offered", "the Fleet must name another package, for other")
    assert found["signal-judge"][0] == "fail"
    assert "and the second time" in found["signal-judge"][1]


def test_a_parser_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(answer: CommandResult) -> str:
        if re.fullmatch(r"(a+)+b", answer.stdout[:200]):
            return "well"
        raise Unreadable("this is no word")

    monkeypatch.setattr(bench, "_LIMIT_S", 0.2)
    assert "takes longer than 0.2 s" in wrong(HostFact(1, "true", slow))["fact-strange-output"]


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("tool {}", True),
        ("tool '{}'", True),
        ('tool "{}"', True),
        ("tool --cipher={quoted}", False),
        ("tool 'its own $(words)' {quoted}", False),
        ("tool", False),
    ],
)
def test_an_option_becomes_one_dead_word(line: str, fails: bool) -> None:
    def command(trial: Trial) -> str:
        option = trial.options.get("cipher", "aes")
        return line.replace("{quoted}", shlex.quote(option)).replace("{}", option)

    def read(_: Trial, output: CommandResult) -> Measured:
        raise UnreadableOutputError(output.stdout[:20])

    assert ("tool-options" in wrong(GateTool(1, command, read))) is fails
    escaped = GateTool(1, lambda trial: 'tool "' + trial.options.get("c", "x").replace('"', '\\"') + '"', read)
    assert "tool-options" in wrong(escaped), "$(...) acts within double quotes"


def test_what_does_not_load_is_tried_no_further() -> None:
    def load() -> Any:
        raise ExtensionRefused("extension acme-fleet 1.2.0: 'state' in reconciler.facts: no")

    report = asyncio.run(check_extension(Offered(HostFact, "state", load), (), here=True))
    assert [one.result.value for one in report.outcomes] == ["fail", *["not tried"] * (len(report.outcomes) - 1)]
    server = asyncio.run(check_extension(Offered(Notifier, "state", lambda: Notifier(1, _send)), (), here=True))
    assert [one.detail for one in server.outcomes] == ["", "`reconciler conformance notifier CHANNEL` tries it"]
