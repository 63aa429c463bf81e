"""An approved plan goes on with what it had begun, and never over what somebody else has deployed since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.converge.run import Ended
from reconciler.lab.hardware.helm_site import LabRelease
from reconciler.lab.inprocess.releases import INSTALL_S
from reconciler.model.plan import Plan
from reconciler.model.releases import ReleaseStatus
from tests.converge.test_release_work import GPU, NETWORK, declare, deployed, ends, left, release, site, stop_after
from tests.converge.test_release_work import here as here  # a fixture
from tests.converge.world import World


def died_in_an_upgrade(here: World) -> Plan:
    """Begin an approved upgrade of revision 1 by a run that dies, and return its plan."""
    here.apply()
    declare(here, release(GPU, "v2"), release(NETWORK))
    approved = here.plan()
    stop_after(here, INSTALL_S / 2, approved)
    assert (site(here).releases[GPU].revision, left(here)) == (2, [GPU])
    site(here).log.clear()
    return approved


def test_an_upgrade_that_died_goes_on(here: World) -> None:
    approved = died_in_an_upgrade(here)
    assert ends(here.apply(approved=approved))[GPU] is Ended.DONE
    assert site(here).log == [("recover", GPU), ("install", GPU)]


@pytest.mark.parametrize(
    ("revision", "chart"),
    [(revision, f"{GPU}-{version}") for revision, version in [(2, "v1"), (2, "v7"), (3, "v7"), (4, "v1"), (4, "v7")]],
)
def test_what_somebody_else_deployed_since_is_not_replaced_unseen(here: World, revision: int, chart: str) -> None:
    """2: the run died before its helm began. 3 and 4: a person has ended what was pending.

    Revision 3 with the chart of before is a rollback to what the plan showed.
    """
    approved = died_in_an_upgrade(here)
    theirs = LabRelease(ReleaseStatus.DEPLOYED, revision, chart, "", here.clock.now(), revision)
    site(here).releases[GPU] = theirs
    assert ends(here.apply(approved=approved))[GPU] is Ended.STALE
    assert (site(here).log, site(here).releases[GPU]) == ([], theirs)
    assert ends(here.apply(approved=replace(here.plan(), id="seen")))[GPU] is Ended.DONE
    assert deployed(here)[GPU] == f"{GPU}-v2"
    assert left(here) == []


def test_a_helm_of_somebody_else_that_hangs_is_not_ended_unseen(here: World) -> None:
    approved = died_in_an_upgrade(here)
    site(here).releases[GPU] = LabRelease(ReleaseStatus.PENDING_UPGRADE, 5, f"{GPU}-v7", since=here.clock.now(), good=4)
    here.clock.elapsed += 601
    assert ends(here.apply(approved=approved))[GPU] is Ended.STALE
    assert site(here).log == []
