"""Sources that did not answer in a pass, grouped so that forty silent BMCs are one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.model.node_names import NodeNames
from reconciler.model.vocab import UnknownReason

if TYPE_CHECKING:  # progress imports this module, and help needs no facts
    from reconciler.model.observed import Observed

# Not a problem: nobody was to ask, or what is under way explains the silence.
EXPECTED = (UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED)


@dataclass(frozen=True, slots=True)
class Silence:
    """A source that did not answer for `nodes`, all for the same reason. `detail`: the words for the first of them."""

    source: str
    reason: UnknownReason
    detail: str
    nodes: tuple[str, ...]
    alike: bool  # `detail` is that of every node

    def sentence(self) -> str:
        """Return who does not answer and why, without the words of a machine."""
        return f"{self.source} does not answer for {NodeNames(self.nodes)}: {self.reason}"

    def explained(self) -> str:
        """Return the sentence with the words of the first node's source, which say what to do."""
        of = "" if self.alike else f"{self.nodes[0]}: "
        return f"{self.sentence()}: {of}{self.detail}" if self.detail else self.sentence()


def silences(nodes: Mapping[str, Observed], names: Sequence[str]) -> tuple[Silence, ...]:
    """Return why sources did not answer for the nodes `names`, those of the cluster last."""
    from reconciler.model.observed import Silent

    found: dict[tuple[str, UnknownReason], list[tuple[str, str]]] = {}
    for name in names:
        seen = nodes[name]
        for source, reading in (("redfish", seen.hot), ("ssh", seen.host), ("kubernetes", seen.member)):
            if isinstance(reading, Silent) and reading.reason not in EXPECTED:
                found.setdefault((source, reading.reason), []).append((name, reading.detail))
    order = {"redfish": 0, "ssh": 1, "kubernetes": 2}
    return tuple(
        Silence(source, reason, of[0][1], tuple(name for name, _ in of), len({detail for _, detail in of}) == 1)
        for (source, reason), of in sorted(found.items(), key=lambda one: (order[one[0][0]], one[0][1]))
    )
