"""What a search of the fabric found is told once, and that it is over once a later search finds it well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.gate.fabric.still_open import still_open
from reconciler.model.fabric_report import FABRIC_FORMAT, BlamedPart, FabricReport
from tests.converge.test_loop import HOUR, MINUTE
from tests.notify.test_loop import Telling, telling

__all__ = ["telling"]

NIC = BlamedPart("NIC", "n2", "mlx5_1", 6, 6, ("n0", "n1"))
LEAF = BlamedPart("leaf", "l1", "mlx5_0", 12, 14, ("n0", "n1"))


def search(here: Telling, number: int, **found: Any) -> None:
    """Save a search as `gate fabric` does, in a process of its own."""
    nodes, now = tuple(here.fleet.nodes), here.clock.now()
    report = FabricReport(
        FABRIC_FORMAT, f"run-{number}", "test", "rails", nodes, {}, (), (), nodes, {}, (), (), 4, now, now
    )
    report = replace(report, **found)
    last = here.ledger.last_search()
    here.ledger.save_search(replace(report, open=still_open(last.open if last else (), report)), "told")


def test_a_culprit_is_told_once_and_when_it_is_well(telling: Callable[..., Telling]) -> None:
    here = telling(nodes=4)
    here.at(10 * MINUTE, lambda: search(here, 1, at_fault=(NIC,), good=("n0", "n1", "n3")), then=6 * HOUR)
    title = "test: n2 is at fault in the fabric (NIC n2, rail mlx5_1)"
    assert here.receiver.titles() == [title]
    assert "reconciler gate show run-1" in here.receiver.taken[0][1].body
    assert here.serves("n2"), "a search takes no node out"
    here.at(10 * MINUTE, lambda: search(here, 2, at_fault=(NIC,), good=("n0", "n1", "n3")), then=6 * HOUR)
    assert here.receiver.titles() == [title], "the same again is no news"
    here.at(10 * MINUTE, lambda: search(here, 3, good=("n0", "n1"), nodes=("n0", "n1", "n3")), then=6 * HOUR)
    assert here.receiver.titles() == [title], "it took no part"
    here.at(10 * MINUTE, lambda: search(here, 4), then=6 * HOUR)
    assert here.receiver.titles() == [title, title.replace("test: ", "test: ended: ")]
    assert len({message.thread for _, message in here.receiver.taken}) == 1


def test_a_common_cause_that_more_nodes_see_is_told_anew(telling: Callable[..., Telling]) -> None:
    here = telling(nodes=6)
    more = replace(LEAF, partners=("n0", "n1", "n2", "n3"))
    here.at(
        HOUR,
        lambda: search(here, 1, incidents=(LEAF,), good=("n4", "n5")),
        lambda: search(here, 2, incidents=(more,), good=("n4", "n5")),
        lambda: search(here, 3),
        then=6 * HOUR,
    )
    title = "test: the fabric has a fault (leaf l1, rail mlx5_0)"
    assert here.receiver.titles() == [title, title, title.replace("test: ", "test: ended: ")]
    bodies = [message.body for _, message in here.receiver.taken]
    assert "Nodes: n[0-1] (2)" in bodies[0]
    assert "which is no node's fault" in bodies[1]


@pytest.mark.parametrize("pool", ["p", "elsewhere"])
def test_a_channel_is_told_of_its_own_pools(telling: Callable[..., Telling], pool: str) -> None:
    here = telling(nodes=4)
    (own,) = {node.pool for node in here.fleet.nodes.values()}
    chosen = own if pool == "p" else pool
    (channel,) = here.fleet.settings.notifications
    here = telling(nodes=4, settings={"notifications": (replace(channel, pools=(chosen,)),)})
    here.at(10 * MINUTE, lambda: search(here, 1, at_fault=(NIC,), good=("n0",)))
    assert len(here.receiver.titles()) == (1 if pool == "p" else 0)
