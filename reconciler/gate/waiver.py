"""Certificates of nodes that served before the reconciler came: nothing was measured, and they say so (DESIGN 7.4)."""

from __future__ import annotations

from datetime import datetime

from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.model.desired import Desired
from reconciler.model.gate import Certificate
from reconciler.model.observed import Observed


def waived(desired: Desired, seen: Observed, now: datetime) -> Certificate | str:
    """Bound to the machine as it is, like any other; a sentence when a part of it is not known.

    Whether the node may be vouched for is not decided here.
    """
    acceptance = desired.profile.acceptance
    if acceptance is None:
        return "its persona names no acceptance profile"
    binding = binding_of(desired, seen, tests_digest(acceptance))
    return binding if isinstance(binding, str) else Certificate("1.0", desired.node, now, binding, (), adopted=True)
