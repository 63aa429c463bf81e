"""A budget that is kept current answers as one that is counted anew."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import Floor
from reconciler.planner.fleet.budget import Budget
from tests import builders as b
from tests.properties.test_permit import fleets, limits, reasons, shares


@given(st.data())
def test_kept_current_or_counted_anew(data: Any) -> None:
    """Whoever leaves and returns, and however time passes in between; and what is supposed leaves no trace."""
    truth = data.draw(fleets())
    declared = tuple(data.draw(st.lists(limits(), max_size=4)))
    floors = tuple(data.draw(st.lists(st.builds(Floor, st.sampled_from(["t", "i"]), shares), max_size=2)))
    now = b.NOW
    taken: dict[str, list[datetime]] = {}

    def anew() -> Budget:
        return b.budget(
            declared, truth.nodes, now=now, out=truth.out, floors=floors, control_plane=truth.control_plane(),
            taken=taken,
        )  # fmt: skip

    kept = anew()
    for _ in range(data.draw(st.integers(1, 6))):
        now += timedelta(minutes=data.draw(st.integers(0, 90)))
        kept.move_to(now)
        back = data.draw(st.sets(st.sampled_from(sorted(truth.nodes)), max_size=3))
        gone = data.draw(st.sets(st.sampled_from(sorted(truth.nodes)), max_size=2)) - back
        truth.out = (truth.out - back) | gone
        for name in sorted(back | gone):
            kept.see(name, name not in truth.out)
        kept.see_control_plane(truth.control_plane())
        with kept.supposing():
            for name in data.draw(st.lists(st.sampled_from(sorted(truth.nodes)), max_size=3)):
                if name in truth.active():
                    kept.charge(name)
        fresh, why = anew(), data.draw(reasons)
        for name in truth.active():
            found, wanted = kept.allows(name, why), fresh.allows(name, why)
            assert (found is None) == (wanted is None), (name, found, wanted)
            assert found is None or wanted is None or found.until == wanted.until
        goes = data.draw(st.sampled_from([*sorted(truth.active()), ""]))
        if goes and goes not in truth.out and kept.allows(goes, why) is None:
            kept.charge(goes)
            truth.out.add(goes)
            taken.setdefault(goes, []).append(now)
