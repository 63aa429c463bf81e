"""A managed value: one path that the spec mentions, and how it is read of a node."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from reconciler.model.observed import Observed
from reconciler.model.vocab import Concern, Source


@dataclass(frozen=True, slots=True)
class Managed:
    """One path that the spec mentions. `wanted` is normalised like the result of `read`; `shown` is as in the spec.

    `raw` returns the value as the node spells it, where normalising changes the spelling. `parts` turns `wanted` and
    the result of `read` into two lists or two mappings, to report which part of them differs; it returns None where
    they have no parts to compare.
    """

    path: str
    concern: Concern
    source: Source
    wanted: Hashable
    shown: Any
    read: Callable[[Observed], Hashable]
    raw: Callable[[Observed], Hashable] | None = None
    parts: Callable[[Any, Any], tuple[Any, Any] | None] | None = None
