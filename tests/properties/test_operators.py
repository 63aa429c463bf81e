"""No node is admitted short of the devices that are declared of it, nor before its validator is Ready."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import DesiredMembership
from reconciler.model.observed import Member, Pod
from reconciler.model.operands import VALIDATOR
from reconciler.model.plan import NodePlan
from reconciler.model.records import Attempt, Mark
from tests import builders as b

MARK = Mark(b.LEDGER, "p", "required by soft_restart", b.NOW.isoformat(), cordoned=True)
NAMES = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "rdma/rdma_shared_device_a")
counts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9))
pods = st.lists(st.builds(lambda ready: b.pod(owner_kind="DaemonSet", evictable=False, operand=VALIDATOR, ready=ready),
                          st.booleans()), max_size=2)  # fmt: skip


def planned(declared: dict[str, int], found: Member, *, validated: bool, times: int = 0) -> NodePlan:
    membership = b.PROFILE.membership
    assert membership is not None
    wanted: DesiredMembership = replace(membership, allocatable=declared, validated=validated)
    node = b.node(profile=b.profile(membership=wanted))
    seen = b.observed(member=found)
    record = b.record(node, seen)
    hours = [timedelta(hours=1 + at) for at in range(times)]
    failed = tuple([Attempt("await_operators", "", "drift", b.NOW - one, "transient", "it waited") for one in hours])
    return b.planner().plan(node, seen, replace(record, attempts=failed))


@given(declared=counts, offered=counts, validators=pods, validated=st.booleans(), times=st.integers(0, 4))
def test_it_waits_before_it_admits_while_anything_is_short(
    declared: dict[str, int], offered: dict[str, int], validators: list[Pod], validated: bool, times: int
) -> None:
    found = b.member(mark=MARK, pods=tuple(validators), allocatable=offered)
    short = {name for name, count in declared.items() if offered.get(name, 0) != count}
    unproved = validated and not any(pod.ready for pod in validators)
    plan = planned(declared, found, validated=validated, times=times)
    names = b.actions(plan)
    if not short and not unproved:
        assert names == ["admit"]
    elif "admit" in names:
        assert names.index("await_operators") < names.index("admit")
    told = str(plan.actions) + plan.situation
    for name in short if plan.actions or plan.blocked else ():
        assert f"it offers {offered.get(name, 0)} {name}, and {declared[name]} are declared" in told


@given(declared=counts, offered=counts)
def test_nobody_is_taken_out_of_service_for_it(declared: dict[str, int], offered: dict[str, int]) -> None:
    plan = planned(declared, b.member(pods=(), allocatable=offered), validated=True)
    assert plan.actions == ()
    assert plan.blocked is None
    assert any(VALIDATOR in str(item.observed) for item in plan.drift), "but it is told"
