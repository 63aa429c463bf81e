"""The programs that save and restore a node's own data, on a lab machine. Its repositories are elsewhere, and stay."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from reconciler.lab.hardware.tools.call import Call, Ran, done, failed
from reconciler.model.backup import RESTORE, SAVE, Saved

SECONDS = 60.0


def backup_script(call: Call) -> Ran | None:
    """Run one of the programs, as `sh -c PROGRAM ...`; None for any other."""
    match call.args:
        case ("-c", program, "sh", repository, _, *paths) if program == SAVE:
            return _closed(call, repository) or _save(call, repository, paths)
        case ("-c", program, "sh", repository, snapshot, manifest, *paths) if program == RESTORE:
            return _closed(call, repository) or _restore(call, repository, snapshot, manifest, paths)
    return None


def _closed(call: Call, repository: str) -> Ran | None:
    """Return restic's failure without a password, or with another one than the repository was first opened with."""
    given = next((line for line in call.stdin.splitlines() if line.startswith("RESTIC_PASSWORD=")), "")
    if given and given == call.machine.state.repository_passwords.setdefault(repository, given):
        return None
    return failed(1, "Fatal: wrong password or no key found\n")


def _within(files: Mapping[str, str], paths: Iterable[str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if any(f"{name}/".startswith(f"{path}/") for path in paths)}


def _manifest(files: Mapping[str, str]) -> str:
    lines = sorted(f"{hashlib.sha256(text.encode()).hexdigest()} {name[1:]}\n" for name, text in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _save(call: Call, repository: str, paths: list[str]) -> Ran:
    for path in paths:
        if not _within(call.machine.disk().files, [path]):
            return failed(1, f"{path} is not there: mount it, or take it out of backup\n")
    files = _within(call.machine.disk().files, paths)
    snapshots = call.machine.state.repositories.setdefault(repository, {})
    snapshot = hashlib.sha256(f"{repository} {len(snapshots)}".encode()).hexdigest()[:8]
    snapshots[snapshot] = files
    return done(f"{Saved(snapshot, len(files), _manifest(files))}\n", seconds=SECONDS)


def _restore(call: Call, repository: str, snapshot: str, manifest: str, paths: list[str]) -> Ran:
    files = call.machine.state.repositories.get(repository, {}).get(snapshot)
    if files is None:
        return failed(1, f'Fatal: no matching ID found for prefix "{snapshot}"\n')
    if _manifest(files) != manifest:
        return failed(4, "the repository no longer holds what was saved\n")
    call.machine.disk().files |= files
    lacking = files.keys() - _within(call.machine.disk().files, paths).keys()
    if lacking:
        return failed(1, f"restored, and different: {min(lacking)[1:]}\n")
    return done("restored\n", seconds=SECONDS)
