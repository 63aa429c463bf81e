"""Keep what a repair is about to destroy: kernel log, driver's report, BMC log, counters, serial numbers.

A dead host must not delay its repair: each part has a time and a size, and what could not be had is said. The bundle is
kept in the ledger by the digest of its text, which the journal names, so a run that goes on after a crash takes none.
Secrets are taken out of every text before it is cut, as a part of a secret has no form that it could be known by.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from reconciler.converge.actions.context import ActionContext
from reconciler.model.concealment import conceal, everywhere
from reconciler.model.errors import DriverError
from reconciler.model.observed import Silent

LONGEST_PART: Final = 200_000  # characters as JSON; of logs and lists the newest
_REPORT_S: Final = 100
# nvidia-bug-report.sh writes a compressed file, and takes a minute; in safe mode it loads nothing on the GPUs.
_BUG_REPORT: Final = (
    "command -v nvidia-bug-report.sh >/dev/null || { echo 'nvidia-bug-report.sh is not there' >&2; exit 127; }; "
    'd=$(mktemp -d) && cd "$d" && '
    f"timeout {_REPORT_S} nvidia-bug-report.sh --safe-mode --output-file report >/dev/null 2>&1; "
    f'gzip -dc report*.gz 2>/dev/null | tail -c {LONGEST_PART}; cd / && rm -rf "$d"'
)
# Part -> (command, seconds that it may take).
_OF_HOST: Final[dict[str, tuple[Sequence[str], float]]] = {
    "kernel log": (("journalctl", "-k", "-b", "-q", "--no-pager", "-n", "3000"), 20.0),
    "nvidia-smi": (("nvidia-smi", "-q"), 20.0),
    "nvidia-bug-report": (("sh", "-c", _BUG_REPORT, "sh"), _REPORT_S + 20.0),
}


async def keep_evidence(ctx: ActionContext) -> str:
    """Take the bundle of a node, keep it in the ledger, journal its digest and return it.

    A later run that goes on with the same attempt finds the digest there, and returns it.
    """
    if known := ctx.resumed.get("evidence"):
        return str(known)
    ctx.step("keeping evidence that the repair destroys")
    parts: dict[str, Any] = {}
    missing: dict[str, str] = {}
    await _of_host(ctx, parts, missing)
    inventory, host = ctx.observed.inventory, ctx.observed.host
    if isinstance(inventory, Silent):
        missing["BMC log, parts"] = f"the BMC gives no inventory: {inventory.reason} {inventory.detail}".rstrip()
    else:
        parts["BMC log, parts"] = {"at": inventory.at, **asdict(inventory.value)}
    if not isinstance(host, Silent):
        parts["facts of the host"] = {"at": host.at, **asdict(host.value)}
    bundle: dict[str, Any] = {"node": ctx.node, "action": ctx.action.id, "at": ctx.clock.now()}
    text = bundle_text(bundle, parts, missing, ctx.conceal)
    digest = hashlib.sha256(text.encode()).hexdigest()
    ctx.ledger.save_results((), {digest: text})
    ctx.journal(evidence=digest)
    return digest


def bundle_text(
    head: Mapping[str, Any], parts: Mapping[str, Any], missing: Mapping[str, str], without_values: Callable[[str], str]
) -> str:
    """Return a bundle as JSON, without secrets, and each of its parts within LONGEST_PART.

    `without_values`: takes the values of known secrets out of a text.
    """

    def safe(value: Any) -> Any:
        return everywhere(value, lambda text: without_values(conceal(text)))

    fitted = {name: _fitted(safe(part)) for name, part in parts.items()}
    cut = sorted(name for name, (_, is_cut) in fitted.items() if is_cut)
    kept = {name: part for name, (part, _) in fitted.items()}
    bundle = {**head, "parts": kept, "missing": safe(missing), "cut": cut}
    return json.dumps(bundle, default=str, ensure_ascii=False, indent=1, sort_keys=True)


def _fitted(part: Any) -> tuple[Any, bool]:
    """Return a part that is short enough, and whether anything is cut: the oldest of its lists, or of its text."""
    is_cut = False
    while isinstance(part, dict) and _length(part) > LONGEST_PART:
        lists = {name: value for name, value in part.items() if isinstance(value, list) and value}
        if not lists:
            part = json.dumps(part, ensure_ascii=False)
            break
        longest = max(lists, key=lambda name: _length(lists[name]))
        part, is_cut = {**part, longest: lists[longest][(len(lists[longest]) + 1) // 2 :]}, True
    while isinstance(part, str) and _length(part) > LONGEST_PART:
        part, is_cut = part[-LONGEST_PART:] if len(part) > LONGEST_PART else part[len(part) // 10 + 1 :], True
    return part, is_cut


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, indent=1))


async def _of_host(ctx: ActionContext, parts: dict[str, Any], missing: dict[str, str]) -> None:
    if ctx.host_port is None or isinstance(ctx.observed.host, Silent):
        missing.update(dict.fromkeys(_OF_HOST, "the host does not answer"))
        return
    silent = ""
    for name, (argv, seconds) in _OF_HOST.items():
        if silent:
            missing[name] = silent
            continue
        try:
            result = await ctx.host_port.run(argv, timeout=max(2.0, ctx.clock.real_seconds(seconds)))
        except DriverError as error:
            silent = missing[name] = str(error)
            continue
        if result.timed_out:
            missing[name] = f"no answer within {seconds:g}s"
        elif result.exit_status or not result.stdout.strip():
            missing[name] = result.stderr.strip()[-300:] or f"exit {result.exit_status}, and nothing was printed"
        else:
            parts[name] = result.stdout
