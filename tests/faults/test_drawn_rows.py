"""`reconciler lab matrix` on rows and ladders that nobody thought of: any row that a spec may have can be played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconciler.app.rehearsal.signals import Stage, play_signal
from reconciler.health.table import Effect, health_table, table_of
from reconciler.lab.signal_scenes import SCENES
from reconciler.model.after import Exchanged
from reconciler.model.desired import Rung
from reconciler.model.played_signal import NEEDED, OUT, PERSON
from reconciler.model.signal_changes import SignalChange
from reconciler.spec.kinds.signals import EVENTS, KERNEL_LOG, First, Next, Proof, Scope, SignalClass
from tests.faults.signal_matrix import RUNGS, stage_with

OWN: Final = "lid_open"
ladders = st.lists(st.tuples(st.sampled_from(RUNGS), st.integers(1, 2)), unique_by=lambda one: one[0])
some_rungs = st.lists(st.sampled_from(RUNGS), min_size=1, unique=True).map(lambda found: sorted(found, key=RUNGS.index))


@st.composite
def changes(draw: st.DrawFn, *, own: str = "") -> SignalChange:
    """Draw a row of a fleet; most of the table's own rows in its place are rows that a spec may have.

    `own`: the row looks for a text of its own in the log that is this fact.
    """
    first = draw(st.sampled_from(First))
    reported = first is First.REPORT
    change = SignalChange(
        draw(st.just(OWN) if own else st.sampled_from(sorted(SCENES))),
        "drawn",
        first=first.value,
        next=None if reported else draw(st.sampled_from(Next)).value,
        rungs=None if reported else draw(st.none() | some_rungs.map(tuple)),
        healed_by=(*draw(st.sets(st.sampled_from(sorted({*Proof} - {Proof.GATE})))), Proof.GATE.value),
        reads=draw(st.none() | st.sampled_from((1, 2))),
    )
    if own:
        scope, cause = draw(st.sampled_from(Scope)).value, draw(st.sampled_from(SignalClass)).value
        window = "2d" if own == EVENTS else None
        change = replace(change, fact=own, contains="chassis Lid", scope=scope, cause=cause, window=window, source="x")
    try:
        health_table((change,))
    except ValueError:
        assume(False)
    return change


@settings(max_examples=max(settings().max_examples // 4, 10))
@given(
    changes() | changes(own=EVENTS) | changes(own=KERNEL_LOG),
    ladders,
    st.data(),
)
def test_any_row_climbs_its_ladder_in_order_and_is_healed_by_the_rung_that_ends_its_cause(
    change: SignalChange, ladder: list[tuple[str, int]], data: st.DataObject
) -> None:
    rungs = tuple(Rung(name, times) for name, times in sorted(ladder, key=lambda one: RUNGS.index(one[0])))
    here = stage_with(change.name, rungs, (change,))
    rung = data.draw(st.sampled_from(here.rungs(change.name) or ("",)))
    played = play_signal(here, change.name, rung)
    assume("no fault of a GPU" not in played.unplayed)  # the lab plays no cause that no machine has
    assert played.out_s is not None, played
    climbed, whole = [done.partition(":")[0] for done in played.did], climb(here, change.name, rungs)
    assert climbed == sorted(climbed, key=lambda done: RUNGS.index(done.partition("!")[0])), played
    for one in rungs:
        assert sum(done.partition("!")[0] == one.action for done in climbed) <= one.attempts, played
    alone = len(played.shown) == 1  # a cause may raise other signals, which treat its node
    if table_of(here.profile).effect_of(change.name) is Effect.REPORTS:
        assert not alone or not played.did, played
        return
    if rung == PERSON and _empties_its_disk(here, change):  # its host is down then, which climbs a ladder of its own
        assert (played.back_s is not None) is ("reimage" in [one.action for one in rungs]), played
        assert NEEDED in played.told, played
        return
    if rung == PERSON:
        assert played.back_s is not None, played  # a reimage may have wiped records, or a boot have hidden the sign
        assert {NEEDED, OUT} & {*played.told}, played
    if alone and (Proof.NEW_SERIAL in (change.healed_by or ()) or rung == PERSON):
        assert climbed == whole[: len(climbed)], played  # what only another part proves healed ends sooner
        assert NEEDED in played.told or climbed, played
    elif alone:
        assert climbed == whole[: whole.index(rung) + 1], played
        assert played.back_s is not None, played
        assert NEEDED not in played.told, played


def _empties_its_disk(here: Stage, change: SignalChange) -> bool:
    """Return whether who repairs the node exchanges its first drive, from which it boots."""
    asks = Proof.NEW_SERIAL in (change.healed_by or ())
    return change.name == OWN and asks and table_of(here.profile).rule_of(OWN).part is Exchanged.DRIVE


def climb(here: Stage, signal: str, ladder: Sequence[Rung]) -> list[str]:
    """Return what is climbed for a signal that nothing heals: each rung that may help, as often as its bound says."""
    usable = here.rungs(signal)
    return [one.action for one in ladder for _ in range(one.attempts) if one.action in usable]


def test_a_fleets_own_row_is_played_by_an_entry_in_the_log_which_a_person_alone_ends() -> None:
    """The lab had no cause for it, so nobody saw what such a row does before it met a machine."""
    drain = SignalChange(
        OWN, "drawn", fact="bmc.events", contains="chassis Lid", scope="node", cause="persistent", window="2d",
        first="drain", next="person", healed_by=("fact_clear", "gate"), source="x",
    )  # fmt: skip
    here = stage_with(OWN, (Rung("power_cycle"),), (drain,))
    played = play_signal(here, OWN, PERSON)
    assert (played.shown, played.did) == (("health.lid_open",), ())
    assert NEEDED in played.told
    assert played.back_s is not None
    assert play_signal(here, OWN, "power_cycle").unplayed.startswith("no rung takes an entry out")


def test_a_fleets_own_row_on_the_kernel_log_is_played_by_a_line_that_a_rung_ends() -> None:
    lost = SignalChange(
        OWN, "drawn", fact=KERNEL_LOG, contains="heartbeat Lost", scope="port", cause="persistent", first="drain",
        next="ladder", healed_by=("fact_clear_after_new_boot", "gate"), source="x",
    )  # fmt: skip
    here = stage_with(OWN, (Rung("soft_restart"), Rung("power_cycle")), (lost,))
    played = play_signal(here, OWN, "power_cycle")
    assert (played.shown, played.did) == (("health.lid_open",), ("soft_restart", "power_cycle"))
    assert played.back_s is not None
    assert played.out_s is not None
    assert played.out_s < 60, "a line wakes the loop; no pass was due"
