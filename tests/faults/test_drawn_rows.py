"""`reconciler lab matrix` on rows and ladders that nobody thought of: any row that a spec may have can be played."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconciler.app.rehearsal.signals import play_signal
from reconciler.health.table import Effect, health_table, table_of
from reconciler.lab.signal_scenes import SCENES
from reconciler.model.desired import Rung
from reconciler.model.played_signal import NEEDED, OUT, PERSON
from reconciler.model.signal_changes import SignalChange
from reconciler.spec.kinds.signals import First, Next, Proof
from tests.faults.signal_matrix import RUNGS, stage_with

ladders = st.lists(st.tuples(st.sampled_from(RUNGS), st.integers(1, 2)), unique_by=lambda one: one[0])
some_rungs = st.lists(st.sampled_from(RUNGS), min_size=1, unique=True).map(lambda found: sorted(found, key=RUNGS.index))


@st.composite
def changes(draw: st.DrawFn) -> SignalChange:
    """Draw a row of a fleet; most of the table's own rows in its place are rows that a spec may have."""
    first = draw(st.sampled_from(First))
    reported = first is First.REPORT
    change = SignalChange(
        draw(st.sampled_from(sorted(SCENES))),
        "drawn",
        first=first.value,
        next=None if reported else draw(st.sampled_from(Next)).value,
        rungs=None if reported else draw(st.none() | some_rungs.map(tuple)),
        healed_by=(*draw(st.sets(st.sampled_from(sorted({*Proof} - {Proof.GATE})))), Proof.GATE.value),
        reads=draw(st.none() | st.sampled_from((1, 2))),
    )
    try:
        health_table((change,))
    except ValueError:
        assume(False)
    return change


@settings(max_examples=max(settings().max_examples // 4, 10))
@given(
    changes(), st.lists(st.tuples(st.sampled_from(RUNGS), st.integers(1, 2)), unique_by=lambda one: one[0]), st.data()
)
def test_any_row_is_played_and_a_person_brings_its_node_back(
    change: SignalChange, ladder: list[tuple[str, int]], data: st.DataObject
) -> None:
    rungs = tuple(Rung(name, times) for name, times in sorted(ladder, key=lambda one: RUNGS.index(one[0])))
    here = stage_with(change.name, rungs, (change,))
    rung = data.draw(st.sampled_from(here.rungs(change.name) or ("",)))
    played = play_signal(here, change.name, rung)
    assert played.out_s is not None, played
    reported = table_of(here.profile).effect_of(change.name) is Effect.REPORTS
    if reported and len(played.shown) == 1:  # a cause may raise other signals, which treat its node
        assert not played.did, played
    elif rung == PERSON:
        assert played.back_s is not None, played  # a reimage may have wiped records, or a boot have hidden the sign
        assert {NEEDED, OUT} & {*played.told}, played
