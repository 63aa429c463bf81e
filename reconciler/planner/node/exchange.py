"""Judge what a person exchanged: the parts of a node when its repair began, against those that are read now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from reconciler.model.repairs import WHOLE_NODE, PlacedPart, Repair, RetiredPart


@dataclass(frozen=True, slots=True)
class Exchange:
    """The result of a repair. `refused`: why it is not accepted, in sentences; () = it is.

    `exchanged`: the faulty parts that are others now, as (old, new). `remarks`: what else a person has to know.
    """

    exchanged: tuple[tuple[PlacedPart, PlacedPart], ...]
    refused: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        done = [f"{old.name}: {old.serial or 'unknown'} -> {new.serial or 'unknown'}" for old, new in self.exchanged]
        return "; ".join([*done, *self.remarks]) or "nothing was exchanged"


@dataclass(frozen=True, slots=True)
class Known:
    """The parts that the ledger knows. `retired`: by serial number. `owners`: serial number -> the node that had it."""

    retired: Mapping[str, RetiredPart]
    owners: Mapping[str, str]


def judge_exchange(repair: Repair, now: Collection[PlacedPart], read: Collection[str], known: Known) -> Exchange:
    """Compare the parts. `read`: kinds of parts that were read, so that one that is not listed is not there.

    What is refused is a remark where a person accepts it: a part may have been reseated.
    """
    exchanged: list[tuple[PlacedPart, PlacedPart]] = []
    refused: list[str] = []
    here = {(part.kind, part.serial) for part in now}
    new = [part for part in now if (part.kind, part.serial) not in {(one.kind, one.serial) for one in repair.before}]
    for old in repair.faulty:
        found = _successor(old, now, new)
        if old.kind == WHOLE_NODE:
            continue
        if old.kind not in read:
            refused.append(f"{old.name}: nothing that was read lists parts of its kind")
        elif (old.kind, old.serial) in here and old.serial:
            refused.append(_same(old, new))
        elif found is None and old.serial:
            refused.append(f"{old.name}: nothing is there in place of {old.serial}")
        elif found is not None:
            exchanged.append((old, found))
    for part in new:
        if part.serial and (retired := known.retired.get(part.serial)) is not None:
            refused.append(
                f"{part.name}: {part.serial} was taken out of {retired.node} as faulty on {retired.at:%Y-%m-%d}"
            )
    remarks = _remarks(exchanged, new, known)
    if repair.accepted:
        return Exchange(tuple(exchanged), (), (*refused, *remarks))
    return Exchange(tuple(exchanged), tuple(refused), tuple(remarks))


def _successor(old: PlacedPart, now: Collection[PlacedPart], new: Collection[PlacedPart]) -> PlacedPart | None:
    """Return the part that is in place of another one: in its slot, else the one new part of its kind."""
    there = [part for part in now if (part.kind, part.place) == (old.kind, old.place) and part.serial != old.serial]
    of_kind = [part for part in new if part.kind == old.kind]
    if there:
        return there[0]
    return of_kind[0] if len(of_kind) == 1 else None


def _same(old: PlacedPart, new: Collection[PlacedPart]) -> str:
    """Return why a part that is still there is not accepted."""
    others = [part.text for part in new if part.kind == old.kind]
    if others:
        return f"{old.name} still has {old.serial}, and the wrong part was exchanged: {', '.join(others)} is new"
    return f"{old.name} still has {old.serial}: nothing was exchanged"


def _remarks(
    exchanged: Collection[tuple[PlacedPart, PlacedPart]], new: Collection[PlacedPart], known: Known
) -> list[str]:
    successors = [part for _, part in exchanged]
    found = [f"{part.text} is new too" for part in new if part not in successors]
    for part in new:
        if part.serial and (owner := known.owners.get(part.serial)) is not None:
            found.append(f"{part.name}: {part.serial} was in {owner} before")
    return found
