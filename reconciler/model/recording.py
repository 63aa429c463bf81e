"""The tree of texts that `--record` keeps: it changes only when the fleet does, and says why it changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reconciler.model.errors import ReconcilerError

KEPT = "RECORD.md"  # stands in every tree of ours: who has none of it is not written to


class RecordError(ReconcilerError):
    """A record of what happened could not be written. Nothing else is wrong."""


@dataclass(frozen=True, slots=True)
class Recording:
    """`files`: by path, and what of them is there already as it is changes nothing. Of the files below `root`, those
    that are named for one of `nodes`, or all when that is None, are no longer true unless they are among `files`.
    """

    subject: str
    body: str
    at: datetime
    files: Mapping[str, str]
    root: str
    nodes: frozenset[str] | None = None

    def is_over(self, path: str) -> bool:
        """Return whether a file that exists is no longer true."""
        if path in self.files or not path.startswith(self.root):
            return False
        return self.nodes is None or path.rpartition("/")[2].removesuffix(".json") in self.nodes


class Recorder(Protocol):
    async def check(self) -> None:
        """RecordError when nothing can be recorded there: before anything is done that should be."""

    async def save(self, recording: Recording) -> bool:
        """Return whether anything changed. Raise RecordError when it could not be written; then nothing was."""
