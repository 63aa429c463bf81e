"""The limits of what one plan may do, and of what may befall the fleet at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guards:
    """The limits of one plan: a plan that does more is refused as a whole. Counts, or shares rounded up.

    The defaults are low (conventions Y10, pitfall J1): a spec that means more says so.
    """

    reimage: str = "20%"
    reboot: str = "30%"
    forget: str = "5%"
    fail_gate: str = "5%"


@dataclass(frozen=True, slots=True)
class Brake:
    """The limits of a storm: more nodes of the fleet or of a failure domain that go bad in this time. Counts or shares.

    A tenth of the fleet is commonly taken for no coincidence any more (pitfall J1); half of a rack is best explained by
    its switch or supply. The time covers one outage as it comes to light: a cluster needs a minute to miss a node, a
    pass over a large fleet some more. First observations trip it, before any host counts as down.
    """

    fleet: str = "10%"
    domain: str = "50%"
    within_s: float = 600.0
