"""What is shared is equal to what was given, to the last type, and is one object where it was many."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.documents import adapter
from reconciler.model.interning import Interning
from reconciler.model.observed import Drive, Observed
from tests import builders as b

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 300, 10**12]),
    st.sampled_from([0.0, -0.0, 1.0, 300.0, float("nan")]),
    st.sampled_from(["", "a", "On", "on"]),
    st.sampled_from(
        [datetime(2026, 1, 1, hour, tzinfo=zone) for hour, zone in ((0, UTC), (1, timezone(timedelta(hours=1))))]
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
        st.builds(Drive, id=st.just("0"), capacity_bytes=inner, serial=inner),
    ),
    max_leaves=12,
)


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_nothing_changes_by_being_shared(values: list[Any]) -> None:
    """0.0 and -0.0, 1 and True, and one instant in two time zones are equal: repr tells them apart."""
    share = Interning()
    assert [repr(share(value)) for value in values] == [repr(value) for value in values]


def test_equal_parts_become_one_object() -> None:
    """But for the few that fall into one place of the table, and what they are part of."""
    share = Interning()
    first, second = (share(pickle.loads(pickle.dumps(b.observed()))) for _ in range(2))
    assert first == second == b.observed()
    known, parts = set(map(id, _parts(first))), list(_parts(second))
    assert sum(id(part) in known for part in parts) > 0.8 * len(parts)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        parts = list(value)
    elif isinstance(value, dict):
        parts = [*value, *value.values()]
    else:
        parts = [getattr(value, each.name) for each in fields(value)] if is_dataclass(value) else []
    yield from (inner for part in parts for inner in (part, *_parts(part)))


def test_what_is_a_machines_own_stays_its_own() -> None:
    share = Interning()
    one, other = (share(Drive("0", serial, model="".join(["SAMSUNG ", "PM9A3"]))) for serial in ("S1", "S2"))
    assert (one.serial, other.serial) == ("S1", "S2")
    assert one.model is other.model


def test_what_was_seen_takes_no_more_room_however_much_it_is() -> None:
    share = Interning()
    places = len(share._seen)
    for number in range(3 * places // 2):
        share(f"sensor {number}")
    assert len(share._seen) == places


def test_an_observation_is_written_as_if_it_were_not_shared() -> None:
    share, write = Interning(), adapter(Observed).dump_json
    for name in ("gpu-a001", "gpu-a002"):
        assert write(share(b.observed(name))) == write(b.observed(name))
