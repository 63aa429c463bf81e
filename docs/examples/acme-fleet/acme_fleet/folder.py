"""A forge that is a folder, for sites without one: pull requests are read from it, and comments written to it.

`pulls.json` lists {number, head, author}; each comment is a file of its own, `NUMBER-ID.md`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reconciler.drivers.extensions import ForgeConnector
from reconciler.model.errors import DriverError, Failure
from reconciler.model.forge import Account, Check, Pull, Remark, Said
from reconciler.model.ports import Clock


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def pull(self, number: int) -> Pull:
        for pull in await self.open_pulls():
            if pull.number == number:
                return pull
        raise DriverError(Failure.UNSUPPORTED, f"{self._path}: there is no pull request {number}")

    async def open_pulls(self) -> list[Pull]:
        return [Pull(one["number"], one["head"], author=one["author"]) for one in self._listed()]

    async def pulls_of(self, commit: str) -> list[Pull]:
        return [pull for pull in await self.open_pulls() if pull.head == commit]

    async def approvals(self, pull: Pull) -> list[Account]:
        return []  # a folder knows no accounts, so nobody has approved

    async def files(self, pull: int) -> list[str]:
        return next((list(one.get("files", ())) for one in self._listed() if one["number"] == pull), [])

    async def remarks(self, pull: int) -> list[Remark]:
        files = sorted(self._path.glob(f"{pull}-*.md"))
        return [Remark(int(file.stem.split("-")[1]), file.read_text(), str(file)) for file in files]

    async def said(self, pull: int, remark: int) -> Said:
        raise DriverError(Failure.UNSUPPORTED, "a folder has no comments of others")

    async def may_write(self, account: Account) -> bool:
        return False

    async def add_remark(self, pull: int, text: str) -> Remark:
        number = max((remark.id for remark in await self.remarks(pull)), default=0) + 1
        file = self._path / f"{pull}-{number}.md"
        file.write_text(text)
        return Remark(number, text, str(file))

    async def edit_remark(self, remark: Remark, text: str) -> None:
        Path(remark.url).write_text(text)

    async def hide_remark(self, remark: Remark) -> None:
        Path(remark.url).unlink(missing_ok=True)

    async def open_issues(self) -> list[Remark]:
        return []

    async def add_issue(self, title: str, text: str) -> Remark:
        raise DriverError(Failure.UNSUPPORTED, "a folder has no issues")

    async def edit_issue(self, issue: int, title: str, text: str, *, close: bool) -> None:
        raise DriverError(Failure.UNSUPPORTED, "a folder has no issues")

    async def set_check(self, commit: str, name: str, verdict: Check, title: str, text: str, url: str) -> None:
        (self._path / f"{commit}.{name.replace('/', '_')}.txt").write_text(f"{verdict} {title}\n")

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self._path / "pulls.json").read_text())
        return found


def _connect(repository: str, token: str, clock: Clock, url: str) -> Folder:
    return Folder(Path(repository))


FORGE = ForgeConnector(api=1, connect=_connect)
