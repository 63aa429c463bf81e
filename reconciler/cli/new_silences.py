"""Tell of sources that do not answer once, and not in each pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.model.silences import Silence
    from reconciler.model.vocab import UnknownReason


class NewSilences:
    """Picks the silences that say something new: a node that answered in the pass before, or was not asked yet."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, UnknownReason], tuple[str, ...]] = {}

    def __call__(self, silent: Sequence[Silence]) -> list[Silence]:
        known, self._known = self._known, {(one.source, one.reason): one.nodes for one in silent}
        return [one for one in silent if not set(one.nodes) <= set(known.get((one.source, one.reason), ()))]
