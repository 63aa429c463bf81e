"""Run the checks of a conformance suite one after another, and say how each ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

from reconciler.model.conformance import Check, CheckOutcome, CheckResult
from reconciler.model.errors import DriverError, Failure

B = TypeVar("B")
Probe = tuple[Check, Callable[[B], Awaitable[None]]]
# Of one call; after any other failure the other side answers nothing, and asking on would only lock us out.
OF_ONE_CALL: Final = frozenset({Failure.MALFORMED, Failure.REJECTED, Failure.CONFLICT, Failure.AMBIGUOUS})


class WrongAnswerError(Exception):
    """Raised by a check for an answer that a driver can't work with. Its text says what was answered, and what not."""


def expect(holds: bool, wrong: str) -> None:
    if not holds:
        raise WrongAnswerError(wrong)


async def run_probes(
    probes: Sequence[Probe[B]],
    bench: B,
    *,
    writes: bool,
    fails: Collection[Failure] = OF_ONE_CALL,
    first: str = "",
) -> tuple[CheckOutcome, ...]:
    """Try the checks in order. `writes`: whether those that write are tried, too.

    `fails`: failures of a driver that fail a check; after any other one nothing more is asked. `first`: the check after
    whose failure nothing more is asked either.
    """
    found, gone, away = list[CheckOutcome](), "", False
    for check, probe in probes:
        if gone or (check.writes and not writes):
            consented = writes or not check.writes
            found.append(CheckOutcome(check, CheckResult.NOT_TRIED, gone or "needs --allow-writes", away and consented))
            continue
        outcome = await _tried(check, probe, bench, fails)
        if outcome.result is CheckResult.NOT_TRIED or (check.name == first and outcome.result is CheckResult.FAIL):
            gone, away = outcome.detail, outcome.unanswered
        found.append(outcome)
    return tuple(found)


async def _tried(
    check: Check, probe: Callable[[B], Awaitable[None]], bench: B, fails: Collection[Failure]
) -> CheckOutcome:
    try:
        await probe(bench)
    except WrongAnswerError as wrong:
        return CheckOutcome(check, CheckResult.FAIL, str(wrong))
    except DriverError as error:
        if error.kind is Failure.UNSUPPORTED:
            return CheckOutcome(check, CheckResult.NOT_OFFERED, error.detail)
        if error.kind in fails:
            return CheckOutcome(check, CheckResult.FAIL, str(error))
        return CheckOutcome(check, CheckResult.NOT_TRIED, str(error), unanswered=True)
    return CheckOutcome(check, CheckResult.PASS)
