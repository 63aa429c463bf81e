"""The bounds of the ladder, against an oracle that counts by itself: no rung more often than it may."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reconciler.health.ladder import REMEDIATION, Treated, next_rung
from reconciler.model.desired import Remediation, Rung
from reconciler.model.records import Attempt
from reconciler.spec.kinds.remediation_policy import RungAction, TreatedClass
from tests import builders as b

NAMES = [rung.value for rung in RungAction]
CLASSES = [name.value for name in TreatedClass]
COUNTED = ["done", "transient", "permanent", "ambiguous"]


@st.composite
def policies(draw: st.DrawFn) -> Remediation:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
    ladder = tuple(Rung(name, draw(st.integers(1, 3))) for name in names)
    days = st.integers(1, 10).map(lambda count: count * 86400.0)
    of_class = draw(st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 5)))
    return Remediation(
        "any", ladder, draw(days), most=draw(st.none() | st.integers(1, 9)), most_of_class=tuple(of_class.items()),
        most_within_s=draw(days),
    )  # fmt: skip


@dataclass(frozen=True)
class Look:
    """A look at an ill node: what it shows, the rungs that may help then, and how an attempt would end."""

    hours_later: int
    shown: frozenset[str]  # signals, as paths: "persistent.2" is of class persistent
    useful: frozenset[str]
    outcome: str


def class_of(path: str) -> str:
    return path.partition(".")[0]


LOOKS = st.lists(
    st.builds(
        Look,
        st.integers(0, 72),
        st.frozensets(st.sampled_from([f"{name}.{n}" for name in CLASSES for n in range(3)])),
        st.frozensets(st.sampled_from(NAMES)),
        st.sampled_from([*COUNTED, "refused"]),
    ),
    max_size=60,
)


@given(policies(), LOOKS)
def test_no_rung_more_than_its_bound(policy: Remediation, looks: list[Look]) -> None:
    """Per node and rung within the window; and per node, and per node and class, within the policy's week."""
    now = b.NOW
    attempts: list[Attempt] = []
    for look in looks:
        now += timedelta(hours=look.hours_later)
        treated = Treated(frozenset(map(class_of, look.shown)), class_of)
        rung = next_rung(policy, tuple(attempts), now, look.useful.__contains__, treated)
        if rung is None:
            continue
        assert rung.action in look.useful
        shown = tuple(sorted(look.shown))
        attempts.append(Attempt(rung.action, "", REMEDIATION, now, look.outcome, ended_at=now, treated=shown))
        tried = [one for one in attempts if one.outcome != "refused"]
        recent = [one for one in tried if now - one.at < timedelta(seconds=policy.window_s)]
        assert sum(one.action == rung.action for one in recent) <= rung.attempts
        weekly = [one for one in tried if now - one.at < timedelta(seconds=policy.most_within_s)]
        assert policy.most is None or len(weekly) <= policy.most
        for name, most in policy.most_of_class:
            if look.outcome != "refused" and name in treated.classes:
                assert sum(any(path.startswith(name) for path in one.treated) for one in weekly) <= most


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
