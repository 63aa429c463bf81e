"""The bounds of the ladder, against an oracle that counts by itself: no rung more often than it may."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reconciler.health.ladder import REMEDIATION, next_rung
from reconciler.model.desired import Remediation, Rung
from reconciler.model.records import Attempt
from reconciler.spec.kinds.remediation_policy import RungAction
from tests import builders as b

NAMES = [rung.value for rung in RungAction]
COUNTED = ["done", "transient", "permanent", "ambiguous"]


@st.composite
def policies(draw: st.DrawFn) -> Remediation:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
    ladder = tuple(Rung(name, draw(st.integers(1, 3))) for name in names)
    days = st.integers(1, 10).map(lambda count: count * 86400.0)
    return Remediation("any", ladder, draw(days), most=draw(st.none() | st.integers(1, 5)), most_within_s=draw(days))


# Hours until the next look, the rungs that may help then, and how the attempt ends.
LOOKS = st.lists(
    st.tuples(st.integers(0, 72), st.sets(st.sampled_from(NAMES)), st.sampled_from([*COUNTED, "refused"])),
    max_size=60,
)


@given(policies(), LOOKS)
def test_no_rung_is_tried_more_often_than_its_bound(
    policy: Remediation, looks: list[tuple[int, set[str], str]]
) -> None:
    now = b.NOW
    attempts: list[Attempt] = []
    for hours, useful, outcome in looks:
        now += timedelta(hours=hours)
        rung = next_rung(policy, tuple(attempts), now, useful.__contains__)
        if rung is None:
            continue
        assert rung.action in useful
        attempts.append(Attempt(rung.action, "", REMEDIATION, now, outcome, ended_at=now))
        tried = [one for one in attempts if one.outcome != "refused"]
        recent = [one for one in tried if now - one.at < timedelta(seconds=policy.window_s)]
        assert sum(one.action == rung.action for one in recent) <= rung.attempts
        weekly = [one for one in tried if now - one.at < timedelta(seconds=policy.most_within_s)]
        assert policy.most is None or len(weekly) <= policy.most


@given(policies(), st.integers(1, 500))
def test_a_node_that_never_heals_is_left_to_a_person(policy: Remediation, hours: int) -> None:
    """Looked at as often as one likes within a window, it is tried at most so often as all rungs together say."""
    attempts: list[Attempt] = []
    step = timedelta(seconds=policy.window_s) / (hours + 1)
    now = b.NOW
    for _ in range(hours):
        now += step
        if (rung := next_rung(policy, tuple(attempts), now)) is not None:
            attempts.append(Attempt(rung.action, "", REMEDIATION, now, "permanent", ended_at=now))
    assert len(attempts) <= sum(rung.attempts for rung in policy.ladder)
