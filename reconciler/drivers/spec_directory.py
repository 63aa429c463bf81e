"""Follow a spec in a directory, for labs and for repositories that something else keeps up to date.

The last valid spec is in force. A directory may be caught half written: a change counts once two reads in a row find
the same files. It has no signatures.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reconciler.drivers.git import describe
from reconciler.model.desired import Fleet
from reconciler.model.errors import Diagnostic, UsageError
from reconciler.model.spec_feed import Fits, Pulled, Trouble, fits_all
from reconciler.spec import SpecTree, check_spec
from reconciler.strict_yaml.parse import UnreadableFile

_Files = frozenset[tuple[str, int, int]]  # path, size, time of the last change


@dataclass(frozen=True, slots=True)
class _Broken:
    detail: str
    diagnostics: tuple[Diagnostic, ...]


class SpecDirectory:
    """`fits`: asked again at each pull while it refuses, since what is amiss is outside of the directory."""

    def __init__(self, directory: Path, fits: Fits = fits_all) -> None:
        self._fits = fits
        self._ask_again = False
        self.fleet: Fleet | None = None  # the spec in force
        self._directory = directory
        self._seen: _Files | None = None  # at the last read
        self._read: _Files | None = None  # as last loaded
        self._commit = ""
        self._broken: _Broken | None = None

    async def pull(self) -> Pulled:
        return await asyncio.to_thread(self._pull)

    def _pull(self) -> Pulled:
        found = self._files()
        settled, self._seen = found == self._seen or self._read is None, found
        if not settled or (found == self._read and not self._ask_again):
            return self._pulled(changed=False)
        self._read, self._ask_again = found, False
        before = self.fleet
        source = describe(self._directory)
        fleet, diagnostics = check_spec(self._directory, directory=str(self._directory), origin=source)
        if fleet is None:
            first = next(one for one in diagnostics if one.severity == "error")
            more = f", and {len(diagnostics) - 1} more" if len(diagnostics) > 1 else ""
            self._broken = _Broken(f"{self._directory}: {first}{more}", diagnostics)
            return self._pulled(changed=False, is_new=True)
        try:
            self._fits(fleet)
        except UsageError as error:
            known, self._broken, self._ask_again = self._broken, _Broken(f"{self._directory}: {error}", ()), True
            return self._pulled(changed=False, is_new=self._broken != known)
        self._broken, self.fleet, self._commit = None, fleet, source.commit or fleet.digest
        changed = before is None or before.digest != fleet.digest
        return self._pulled(changed=changed, warnings=diagnostics if changed else ())

    def _pulled(self, *, changed: bool, is_new: bool = False, warnings: tuple[Diagnostic, ...] = ()) -> Pulled:
        if self._broken is None:
            return Pulled(self._commit, changed, self._commit, diagnostics=warnings)
        return Pulled(
            self._commit, changed, self._commit, Trouble.INVALID, self._broken.detail, is_new, self._broken.diagnostics
        )

    def _files(self) -> _Files:
        found = set()
        try:
            for name, entry in SpecTree(self._directory, str(self._directory)).entries():
                with suppress(FileNotFoundError):  # deleted meanwhile: the next read settles it
                    stat = entry.stat(follow_symlinks=False)
                    found.add((name, stat.st_size, stat.st_mtime_ns))
        except UnreadableFile as problem:  # `check_spec` reports it, which can't list them either
            return frozenset({(str(problem.diagnostic), 0, 0)})
        return frozenset(found)
