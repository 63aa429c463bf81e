"""Commands that people give in comments on pull requests: `/reconciler plan`, `hold NODE`, `explain NODE`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

WORD: Final = "/reconciler"
_NODE: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_NOT_IN_A_REASON: Final = re.compile(r"[^\w .,:;#/()+=-]")  # it goes through variables of a CI job
_REASON: Final = 200  # characters


class Verb(StrEnum):
    PLAN = "plan"
    HOLD = "hold"
    EXPLAIN = "explain"


@dataclass(frozen=True, slots=True)
class CommentCommand:
    """`node` is "" for a plan. `reason`: why a node is held, in characters that a variable of a CI job may have."""

    verb: Verb
    node: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.node}".rstrip()


class UnknownCommand(ValueError):
    """The comment begins with our word, and goes on as no command does."""


def read_command(text: str) -> CommentCommand | None:
    """Return the command that a comment begins with, None for a comment that is none. Raise UnknownCommand."""
    word, *words = text.strip().partition("\n")[0].split() or [""]
    if word != WORD:
        return None
    if not words:
        raise UnknownCommand("a command is missing")
    verb, *rest = words
    if verb not in list(Verb):
        raise UnknownCommand("there is no such command")
    if verb == Verb.PLAN:
        if rest:
            raise UnknownCommand("plan takes nothing more: it is of the whole change")
        return CommentCommand(Verb.PLAN)
    if not rest or not _NODE.fullmatch(rest[0]):
        raise UnknownCommand(f"{verb} takes the name of a node")
    if verb == Verb.EXPLAIN:
        if rest[1:]:
            raise UnknownCommand("explain takes one node, and nothing more")
        return CommentCommand(Verb.EXPLAIN, rest[0])
    reason = " ".join(_NOT_IN_A_REASON.sub("", " ".join(rest[1:])).split())[:_REASON]
    return CommentCommand(Verb.HOLD, rest[0], reason)
