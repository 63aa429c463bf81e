"""One record for each drive that was to be erased: how, with which log, whether that is proved, and a digest of it all.

Pure. Evidence comes from hosts and installers and is judged here: what it lacks proves nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from reconciler.converge.erasing import Unreadable, log_of
from reconciler.model.printable import visible

ERASED, NOT_ERASED = "erased", "not erased"
_ABOUT_IT: Final = ("digest", "result", "why", "ended_at")  # what a record says of its evidence


def why_not_erased(serial: str, found: Mapping[str, Any]) -> str:
    """Return what of an installer's evidence does not prove the erase of this drive; "" if all does."""
    if found.get("serial") != serial or not found.get("ended"):
        return "the installer sent no evidence of it"
    if found["log"]:
        try:
            log = log_of(bytes.fromhex(found["log"]))
        except (Unreadable, ValueError) as gap:
            return f"its sanitize log can't be read: {gap}"
        if not log.succeeded:
            return f"its sanitize log says {log.words}"
        if not log.proves(found["log_before"]):
            return "its sanitize log is as it was before the command"
    elif "sanitize" in found["method"]:
        return "the installer sent no log of the sanitize"
    elif not found["samples"]:
        return "without a log, samples of before are needed, and there are none"
    if not found["samples_after"]:
        return "nobody looked at it afterwards"
    return still_held(found["samples"], found["samples_after"])


def still_held(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> str:
    """Return what of samples before and after an erase disproves it; "" if nothing does.

    Those of an NVMe drive are of all its namespaces, one after the other, so the same byte is there more than once.
    """
    if before and [one["offset"] for one in before] != [one["offset"] for one in after]:
        return "it was not looked at in the same places before and afterwards"
    kept = [
        str(new["offset"])
        for old, new in zip(before, after, strict=False)
        if not old["blank"] and new["digest"] == old["digest"]
    ]
    return f"it still holds at byte {', '.join(kept)} what it held before" if kept else ""


def has_ended(found: Mapping[str, Any]) -> bool:
    """Return whether the installer has said all that it will say of a drive."""
    return bool(found.get("ended") or found.get("failed"))


def record_of(serial: str, found: Mapping[str, Any], about: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    """Judge what an installer sent of a drive. `about`: who asked for it, and when."""
    why = visible(str(found.get("failed") or "")) or why_not_erased(serial, found)
    kept = {key: value for key, value in found.items() if key not in ("ended", "failed")}
    evidence = {"serial": serial, **kept, **about}
    return finished(evidence, NOT_ERASED, at, why=why) if why else finished(evidence, ERASED, at)


def finished(evidence: Mapping[str, Any], result: str, at: datetime, **more: Any) -> dict[str, Any]:
    """Return evidence as the record that is kept of its drive."""
    record = {**evidence, "ended_at": at.isoformat(timespec="seconds"), "result": result, **more}
    return {**record, "digest": digest_of(record)}


def digest_of(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record's evidence as canonical JSON, without what the record says of it."""
    evidence = {key: value for key, value in record.items() if key not in _ABOUT_IT}
    text = json.dumps(evidence, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def proves(record: Mapping[str, Any], since: datetime | None) -> bool:
    """Return whether a record shows a drive erased, and nobody used the machine after that."""
    return record.get("result") == ERASED and is_after(record, since)


def is_after(record: Mapping[str, Any], since: datetime | None) -> bool:
    return since is None or datetime.fromisoformat(str(record["ended_at"])) >= since.replace(microsecond=0)


def sentence_of(record: Mapping[str, Any]) -> str:
    """Return a record in words: how its drive was erased, and what shows it."""
    log = log_of(bytes.fromhex(record["log"])).words if record.get("log") else ""
    shown = f"its log says {log}" if log else "the drive ended its erase"
    samples = len(record.get("samples_after", ()))
    return f"{record['method']}: {shown}; {samples} samples hold nothing of what they held; {evidence_of(record)}"


def evidence_of(record: Mapping[str, Any]) -> str:
    return f"evidence {str(record.get('digest', ''))[:16]}"


def named(serials: tuple[str, ...], records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return drives with their method and the digest of their evidence, as a list."""
    return ", ".join(
        f"{serial} ({records[serial].get('method')}, {evidence_of(records[serial])})" if serial in records else serial
        for serial in serials
    )
