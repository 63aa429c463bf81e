"""A worker answers for a shard with the fields of each source of each node that the leader does not know yet.

The leader says by digest what it knows. Where that is what the worker read last, only the fields that changed since go
back; the others are the objects that the leader has. Two thirds of a node's readings never change, and the rest does in
every pass: uptime, counters, clocks.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel, TypeAdapter, create_model

from reconciler.model.interning import share
from reconciler.model.observed import Answered, HostFacts, RedfishHot, RedfishInventory, Silent
from reconciler.model.observer_port import Readings
from reconciler.model.vocab import UnknownReason

P = TypeVar("P")

KINDS: Final[tuple[type[Any], ...]] = (RedfishHot, RedfishInventory, HostFacts)  # in the order of Readings
_FAST: Final = 1  # zlib's level: the text shrinks tenfold, and the best one by a fifth more
Digests = tuple[str, str, str]  # of the values in Readings; "" = none
NO_DIGESTS: Final[Digests] = ("", "", "")


class Known(NamedTuple):
    """Readings of a node, and the digests of their values."""

    readings: Readings
    digests: Digests


@dataclass(frozen=True, slots=True)
class Sent(Generic[P]):
    """One reading. `value`: the fields to lay over the value with digest `base`; "" = all fields of a new one."""

    at: datetime
    digest: str = ""
    base: str = ""
    value: P | None = None
    reason: UnknownReason | None = None  # of a silent source
    detail: str = ""


SentNode = tuple[Sent[Any], Sent[Any], Sent[Any]]  # in the order of Readings


class ShardAnswer(NamedTuple):
    """`at`: the worker's clock when it answered. `insecure`: as of ShardSeen."""

    at: datetime
    nodes: Mapping[str, SentNode]
    insecure: tuple[str, ...] = ()


@cache
def _parts() -> tuple[type[BaseModel], ...]:
    """Return a model of each kind of which any fields may be absent."""
    hints = [get_type_hints(kind, include_extras=True) for kind in KINDS]
    # Fields that are known when it runs are beyond the types of create_model.
    return tuple(
        create_model(kind.__name__, **{name: (hint, None) for name, hint in own.items()})  # type: ignore[call-overload]
        for kind, own in zip(KINDS, hints, strict=True)
    )


@cache
def _adapter() -> TypeAdapter[Any]:
    hot, inventory, host = _parts()
    node: Any = tuple[Sent[hot], Sent[inventory], Sent[host]]  # type: ignore[valid-type]  # models made above
    return TypeAdapter(tuple[datetime, dict[str, node], tuple[str, ...]])


def sent_of(known: Digests, last: Known | None, now: Readings) -> tuple[SentNode, Digests]:
    """Return what to send of a node's readings, and their digests.

    `known`: what the leader has. `last`: what this worker read before, with its digests.
    """
    sent: list[Sent[Any]] = []
    digests: list[str] = []
    for at, reading in enumerate(now):
        if isinstance(reading, Silent):
            sent.append(Sent(reading.at, reason=reading.reason, detail=reading.detail))
            digests.append("")
            continue
        before = None if last is None else last.readings[at]
        same = isinstance(before, Answered) and before.value == reading.value
        digest = last.digests[at] if same and last is not None else _digest(at, reading.value)
        digests.append(digest)
        if digest == known[at]:
            sent.append(Sent(reading.at, digest, base=digest))
        elif last is not None and isinstance(before, Answered) and known[at] == last.digests[at]:
            sent.append(Sent(reading.at, digest, known[at], _part(at, _changed(before.value, reading.value))))
        else:
            sent.append(Sent(reading.at, digest, value=_part(at, _fields(reading.value))))
    return (sent[0], sent[1], sent[2]), (digests[0], digests[1], digests[2])


def received(sent: SentNode, known: Known | None) -> Known:
    """Return the readings of a node. Raise ValueError where they are laid over others than those that are known."""
    readings: list[Any] = []
    for at, one in enumerate(sent):
        if one.reason is not None:
            readings.append(Silent(one.at, one.reason, one.detail))
            continue
        news = {} if one.value is None else {name: getattr(one.value, name) for name in one.value.model_fields_set}
        if not one.base:
            readings.append(Answered(one.at, share(KINDS[at](**news))))
            continue
        before = None if known is None or known.digests[at] != one.base else known.readings[at]
        if not isinstance(before, Answered):
            raise ValueError("the worker sends changes of readings that nobody knows")  # noqa: TRY004 - of what was sent, not of a type
        readings.append(Answered(one.at, replace(before.value, **news) if news else before.value))
    return Known(Readings(*readings), (sent[0].digest, sent[1].digest, sent[2].digest))


def packed(answer: ShardAnswer) -> bytes:
    return zlib.compress(_adapter().dump_json(tuple(answer), exclude_unset=True), _FAST)


def unpacked(data: bytes) -> ShardAnswer:
    """Return an answer. Raise ValueError for what is none."""
    try:
        return ShardAnswer(*_adapter().validate_json(zlib.decompress(data)))
    except zlib.error as error:
        raise ValueError(f"not an answer of a worker: {error}") from None


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _changed(before: Any, now: Any) -> dict[str, Any]:
    return {name: new for name, new in _fields(now).items() if new != getattr(before, name)}


def _part(at: int, values: dict[str, Any]) -> BaseModel:
    return _parts()[at].model_construct(_fields_set=set(values), **values)


def _digest(at: int, value: Any) -> str:
    text = _part(at, _fields(value)).model_dump_json(exclude_unset=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
