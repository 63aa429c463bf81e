"""Tell whether operators are done with a node: what they validate, and which devices it offers to the scheduler.

The policies of NVIDIA's operators have one state for all nodes, which one dead node makes notReady. So a node is judged
by its own validator pod and its own allocatable resources, and by no other node's.
"""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.desired import Desired, DesiredMembership
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.observed import Answered, Member, Observed
from reconciler.model.operands import VALIDATOR
from reconciler.model.vocab import Concern, Source
from reconciler.planner.node import conditions as c
from reconciler.planner.node.conditions import ConditionBuilder, Conditions

# Labels of NVIDIA's Network Operator: "true" while its driver or its configuration of NICs is not ready on the node.
_NOT_YET = ("network.nvidia.com/operator.mofed.wait", "network.nvidia.com/operator.nic-configuration.wait")


def assess_operators(builder: ConditionBuilder, desired: Desired, observed: Observed) -> None:
    """Tell whether a node has all that the spec makes its admission wait for; nothing where that is nothing."""
    membership = desired.profile.membership
    if membership is None or not membership.waits_for_operators:
        return
    if not isinstance(observed.member, Answered):
        builder.set(c.OPERATORS, None, f"cluster {observed.member.why}")
        return
    member = observed.member.value
    lacks = ("the cluster has no such node",) if member is None else tuple(lacking(membership, member))
    builder.set(c.OPERATORS, not lacks, *lacks)


def lacking(membership: DesiredMembership, member: Member) -> Iterator[str]:
    """Yield what a node lacks before it may be admitted, each as a sentence with the numbers."""
    if membership.validated:
        pods = [pod for pod in member.pods if pod.operand == VALIDATOR]
        if not pods:
            yield f"no pod of {VALIDATOR} is on it"
        elif not any(pod.ready for pod in pods):
            yield f"its pod of {VALIDATOR} is not Ready"
    if membership.networked or membership.allocatable:
        for label in _NOT_YET:
            if member.labels.get(label) == "true":
                yield f"the Network Operator is not done with it ({label})"
    for name, declared in membership.allocatable.items():
        offered = member.allocatable.get(name, 0)
        if offered != declared:
            yield f"it offers {offered} {name}, and {declared} are declared"


def operator_items(desired: Desired, state: Conditions) -> list[DriftItem]:
    """Return what a node in service lacks, as reported drift: nobody is taken out of service for that."""
    if c.IN_SERVICE not in state.true:
        return []
    return [
        DriftItem(
            desired.node, Concern.CLUSTER, "cluster.allocatable", DriftClass.REPORTED, "as declared", why,
            source=Source.KUBERNETES, detail="reported only: it is admitted again only when that is over",
        )
        for why in state.because.get(c.OPERATORS, ())
    ]  # fmt: skip
