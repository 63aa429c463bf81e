"""The limits of what one plan may do, and of what may befall the fleet at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guards:
    """A plan that does more than this is refused as a whole: counts, or shares rounded up.

    The defaults are low (conventions Y10, pitfall J1): who means more than this says so in the spec.
    """

    reimage: str = "20%"
    reboot: str = "30%"
    forget: str = "5%"


@dataclass(frozen=True, slots=True)
class Brake:
    """More nodes of the fleet, or of one failure domain, that go bad within this time are a storm: counts, or shares.

    A tenth of the fleet is what is commonly thought to be no coincidence any more (pitfall J1), half of a rack what its
    own switch or supply explains best. The time covers one outage as it is seen by and by: a cluster takes a minute to
    miss a node, a pass over a large fleet some more. First sights trip it, before any host is found to be down.
    """

    fleet: str = "10%"
    domain: str = "50%"
    within_s: float = 600.0
