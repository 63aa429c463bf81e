"""A budget that is told of every change answers as one that is counted anew: isolated nodes go stale in no sequence."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.model import desired as d
from reconciler.planner.fleet.budget import Budget
from tests import builders as b

NAMES = [f"n{at}" for at in range(6)]
NODES = {name: b.node(name, pool="ab"[at % 2], domains={"rack": f"r{at % 3}"}) for at, name in enumerate(NAMES)}
LIMITS = (d.BudgetLimit("fleet", "3"), d.BudgetLimit("rack", "1"), d.BudgetLimit("pool", "2"))
names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("see"), names, st.sampled_from([True, False, None])),
    st.tuples(st.just("isolate"), names, st.none()),
    st.tuples(st.just("charge"), names, st.none()),
    st.tuples(st.just("suppose"), names, st.none()),
    st.tuples(st.just("member"), st.sampled_from([*NAMES[:3], "elsewhere"]), st.booleans()),
)


class Model:
    def __init__(self, limits: Sequence[d.BudgetLimit]) -> None:
        self.limits = limits
        self.out: set[str] = set()
        self.isolated: set[str] = set()
        self.unknown: set[str] = set()
        self.members = dict.fromkeys(NAMES[:3], True)

    def whole(self) -> Budget:
        return b.budget(
            self.limits, NODES, now=b.NOW, out=self.out, unknown=self.unknown, isolated=sorted(self.isolated),
            control_plane=self.members,
        )  # fmt: skip

    def see(self, name: str, serves: bool | None) -> None:
        (self.unknown.add if serves is None else self.unknown.discard)(name)
        if serves:
            self.out.discard(name)
            self.isolated.discard(name)
        else:
            self.out.add(name)


# n0 of the control plane is isolated, and n1 fails: to drain n0 would end the quorum.
@example(LIMITS[:1], [("see", "n0", False), ("isolate", "n0", None), ("member", "n1", False)])
@given(st.sampled_from([LIMITS, LIMITS[:1], ()]), st.lists(steps, max_size=25))
def test_a_kept_budget_answers_as_one_counted_anew(
    limits: Sequence[d.BudgetLimit], taken: list[tuple[str, str, bool | None]]
) -> None:
    model = Model(limits)
    kept = model.whole()
    for what, name, value in taken:
        if what == "see":
            kept.see(name, value)
            model.see(name, value)
        elif what == "member":
            model.members = {**model.members, name: bool(value)}
            kept.see_control_plane(model.members)
        elif what == "isolate":
            kept.isolate(name)
            if name in model.out:
                model.isolated.add(name)
        elif what == "charge" and kept.allows(name) is None:
            kept.charge(name)
            model.out.add(name)
            model.isolated.discard(name)
        elif what == "suppose":
            with kept.supposing():
                kept.charge(name)
        fresh = model.whole()
        assert set(kept.out) == set(fresh.out)
        for node in NAMES:
            assert (kept.allows(node) is None) is (fresh.allows(node) is None), (what, name, node)
            assert kept.is_isolated(node) is fresh.is_isolated(node)
        used = {line.scope: sorted(line.out) for line in kept.lines()}
        assert used == {line.scope: sorted(line.out) for line in fresh.lines()}
