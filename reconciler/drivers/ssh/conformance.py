"""Checks of a host against what the SSH driver relies on, over that driver. They only read."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Final

from reconciler.drivers.probes import Probe, WrongAnswerError, expect, run_probes
from reconciler.drivers.ssh.facts.fact import excerpt
from reconciler.drivers.ssh.host import CLOSE_S, KILL_AFTER_S, SshHost
from reconciler.model.conformance import Check, ConformanceReport
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Silent

_LARGE: Final = 300_000  # bytes: more than a window of SSH, so that both directions are paced
_TEXT: Final = "reconciler \u00fc\n"
_WAIT_S: Final = 30.0
_ENDED_S: Final = 1.0 + KILL_AFTER_S + CLOSE_S + 5.0  # the longest that a command of one second may take
_AWAY: Final = frozenset({Failure.UNREACHABLE, Failure.TIMEOUT, Failure.BUSY})


async def _login(host: SshHost) -> None:
    done = await host.run(("true",), timeout=_WAIT_S)
    expect(done.exit_status == 0, f"`true` ends with exit status {done.exit_status}: {excerpt(done.stderr)}")


async def _user(host: SshHost) -> None:
    said = (await host.run(("id", "-u"), timeout=_WAIT_S)).stdout.strip()
    expect(said == "0", f"the user has the number {excerpt(said) or 'nothing'}, and not 0: log in as root")


async def _silence(host: SshHost) -> None:
    done = await host.run(("true",), timeout=_WAIT_S)
    said = done.stdout or done.stderr
    expect(
        not said, f"a command that prints nothing answers {excerpt(said)!r}: see what its shell or sshd prints first"
    )


async def _streams(host: SshHost) -> None:
    line = f"printf '{_TEXT[:-1]}\\n'; echo wrong >&2; exit 7"
    done = await host.run(("sh", "-c", line), timeout=_WAIT_S)
    expect(done.exit_status == 7, f"exit status 7 arrives as {done.exit_status}")
    expect(done.stdout == _TEXT, f"{_TEXT!r} arrives as {excerpt(done.stdout)!r}")
    expect(done.stderr == "wrong\n", f"stderr arrives as {excerpt(done.stderr)!r}")


async def _whole(host: SshHost) -> None:
    sent = "0123456789abcde\n" * (_LARGE // 16)
    done = await host.run(("cat",), timeout=_WAIT_S, stdin=sent)
    expect(done.stdout == sent, f"of {len(sent)} bytes that `cat` was given, {len(done.stdout)} or others came back")


async def _deadline(host: SshHost) -> None:
    there = await host.run(("sh", "-c", "command -v timeout"), timeout=_WAIT_S)
    if there.exit_status != 0:
        raise DriverError(Failure.UNSUPPORTED, "timeout(1) is not installed: install coreutils")
    # It has a child and ignores what timeout(1) sends first, as tools of GPUs do that wait for a driver.
    mark = f"reconciler-{secrets.token_hex(8)}"
    hangs = f"trap '' TERM; while :; do sleep 1; done; : {mark}"
    started = time.monotonic()
    done = await host.run(("sh", "-c", hangs), timeout=1)
    took = time.monotonic() - started
    expect(done.timed_out, f"a command with a second to run ended with exit status {done.exit_status}")
    expect(took < _ENDED_S, f"a command with a second to run was given up after {took:.0f} s")
    try:
        left = await host.run(("sh", "-c", _PROCESSES), timeout=_WAIT_S, stdin=f"{mark}\n")
    except DriverError as error:
        raise WrongAnswerError(f"after a command that hung, nothing is answered: {error}") from error
    expect(not left.stdout.strip(), f"a command that hung goes on as process {excerpt(left.stdout)}: end it")


async def _channels(host: SshHost) -> None:
    """A long command has a channel, and facts are read meanwhile on the same connection."""
    waiting = asyncio.create_task(host.run(("sleep", "3"), timeout=_WAIT_S))
    try:
        await asyncio.sleep(0.2)
        await host.run(("true",), timeout=_WAIT_S)
        if waiting.done():
            waiting.result()  # which may tell that it was refused
        expect(not waiting.done(), "a second command waits until the first has ended")
    finally:
        await asyncio.gather(waiting, return_exceptions=True)


async def _facts(host: SshHost) -> None:
    found = await host.facts((), ())
    if isinstance(found, Silent):
        raise WrongAnswerError(found.detail)
    lacking = [name for name in ("boot_id", "kernel", "uptime_s", "hostname") if getattr(found.value, name) is None]
    reasons = "; ".join(f"{name}: {found.value.unknown.get(name, 'no answer')}" for name in lacking)
    expect(not lacking, f"not read: {reasons}")


async def _identity(host: SshHost) -> None:
    found = await host.facts((), ())
    if isinstance(found, Silent):
        raise WrongAnswerError(found.detail)
    if found.value.serial is None and found.value.uuid is None:
        why = found.value.unknown.get("serial") or found.value.unknown.get("uuid") or "DMI has neither"
        raise DriverError(Failure.UNSUPPORTED, f"neither serial number nor UUID: {why}")


# Prints the numbers of processes with a word in their arguments. It is read: arguments of this one would hold it.
# ps(1) is not on every host.
_PROCESSES: Final = """\
read -r mark
for at in /proc/[0-9]*; do
    tr '\\0' ' ' 2>/dev/null <"$at/cmdline" | grep -q -e "$mark" && echo "${at#/proc/}"
done 2>/dev/null
true"""
_DRIVER: Final = "reconciler/drivers/ssh/host.py"
PROBES: Final[tuple[Probe[SshHost], ...]] = (
    (Check("login", "RFC 4252; host certificate, PROTOCOL.certkeys", "the host is unknown, and nothing is done to it"),
     _login),
    (Check("root", f"{_DRIVER}: run", "what needs root fails: services, images, drivers"), _user),
    (Check("silence", "RFC 4254, section 6.5", "banners of the shell are taken for answers"), _silence),
    (Check("exit-status", "RFC 4254, section 6.10", "a command that failed is taken for one that worked"), _streams),
    (Check("whole-output", "RFC 4254, section 5.2", "answers are cut, and results unjudged"), _whole),
    (Check("two-channels", "RFC 4254, section 5", "a long test keeps facts from being read"), _channels),
    (Check("deadline", f"{_DRIVER}: run", "a command that hangs goes on, or takes the connection with it"), _deadline),
    (Check("facts", "reconciler/model/fact_framing.py", "the host is unknown in each pass"), _facts),
    (Check("identity", "SMBIOS, type 1", "the BMC alone says which machine it is"), _identity),
)  # fmt: skip


async def check_host(host: SshHost, address: str) -> ConformanceReport:
    """Try the checks. A host that does not answer is tried once; one that refuses us fails `login`."""
    found = await run_probes(PROBES, host, writes=False, fails=frozenset(Failure) - _AWAY, first="login")
    return ConformanceReport("ssh", address, found)
