"""Why things are not known: one short sentence for all nodes that are silent for the same reason."""

from __future__ import annotations

from datetime import timedelta

import pytest

from reconciler.drivers.redfish.breaker import Breaker
from reconciler.drivers.redfish.login_guard import Account, LoginGuard
from reconciler.drivers.secrets import Credentials, Secret
from reconciler.model.desired import Endpoints
from reconciler.model.errors import DriverError
from reconciler.model.observed import Observed, Silent
from reconciler.model.plan import BlockCode
from reconciler.model.vocab import UnknownReason
from reconciler.planner.node.unknowns import LENGTH, summarize
from tests import builders as b

HANGS = "accepts connections, but SSH does not answer within 30 s: the host hangs or is overloaded"


def dark(name: str, port: int) -> Observed:
    unreachable = UnknownReason.UNREACHABLE
    host = Silent(b.NOW, unreachable, f"{name} (127.0.0.1:{port}) {HANGS}")
    bmc = Silent(b.NOW, unreachable, f"https://127.0.0.1:{port}: nothing listens")
    member = Silent(b.NOW, UnknownReason.AUTH, "the API server refuses the token")
    return Observed(name, hot=bmc, inventory=bmc, host=host, member=member)


def test_silent_nodes_share_one_sentence_whatever_their_names_and_addresses() -> None:
    """Conventions C11: told once for many nodes."""
    planner, told = b.planner(), set()
    for at in range(3):
        node = b.node(f"gpu-000{at}", endpoints=Endpoints(f"https://127.0.0.1:{39_000 + at}", "host:22"))
        blocked = planner.plan(node, dark(node.node, 39_000 + at), b.record(node)).blocked
        assert blocked is not None
        assert blocked.code is BlockCode.UNKNOWN
        told.add(blocked.detail)
    assert len(told) == 1
    detail = told.pop()
    assert f"SSH unreachable: {HANGS}: " in detail
    assert "BMC unreachable: nothing listens: bios, " in detail
    assert "cluster auth: the API server refuses the token: " in detail
    assert "127.0.0.1" not in detail
    assert "gpu-000" not in detail
    assert len(detail) < LENGTH + 100


def refuse(account: Account) -> None:
    account.credentials(lambda: False)
    raise account.refused("HTTP 401 Unauthorized")


def test_nodes_share_it_whenever_their_bmcs_refused_the_secret_or_were_not_asked_any_more() -> None:
    """The words are those of the driver: a wrong secret of the fleet is told on two rows, and no time makes a third."""
    later = [b.NOW]
    guard, told = LoginGuard(lambda: later[0]), set()
    for at in range(6):
        later[0] = b.NOW + timedelta(minutes=at)
        node = b.node(f"gpu-000{at}", endpoints=Endpoints(f"https://10.20.0.{at}", "host:22"))
        address = f"https://10.20.0.{at}"
        account = guard.account(address, node=node.node, secret="bmc", read=lambda: Credentials("root", Secret("x")))
        with pytest.raises(DriverError) as refused:
            refuse(account)
        bmc = Silent(b.NOW, UnknownReason.AUTH, refused.value.detail)
        blocked = b.planner().plan(node, b.observed(node.node, hot=bmc, inventory=bmc), b.record(node)).blocked
        assert blocked is not None
        told.add(blocked.detail.partition(": bios")[0])
    assert told == {
        "BMC auth: BMC its address refused secret 'bmc'",
        "BMC auth: BMC its address was not asked: 3 BMCs refused secret 'bmc' and none accepted it since",
    }


def test_nodes_share_it_whenever_their_bmcs_are_tried_again() -> None:
    told = set()
    for at in range(3):
        node = b.node("gpu-0001", endpoints=Endpoints("https://10.20.0.1", "host:22"))
        breaker = Breaker("https://10.20.0.1")
        for missed in range(4 + at):
            breaker.missed("https://10.20.0.1: connection refused", b.NOW + timedelta(minutes=at, seconds=missed))
        with pytest.raises(DriverError) as left_alone:
            breaker.check(b.NOW + timedelta(minutes=at, seconds=4))
        told.add(summarize({"bios": f"BMC unreachable: {left_alone.value.detail}"}, node))
    assert told == {"BMC unreachable: connection refused: bios not known"}


def test_each_cause_is_named_once_with_all_values_that_it_hides() -> None:
    unknown = {
        "gpu": "SSH unreachable",
        "hardware": "hardware.gpus (SSH unreachable); hardware.nics (BMC auth)",
        "healthy": "SSH unreachable: gpu-a001 (10.0.0.1:22) closed the connection (reset by peer)",
        "member": "cluster timeout",
    }
    assert summarize(unknown, b.node()) == (
        "SSH unreachable: closed the connection (reset by peer): gpu, hardware, healthy not known; "
        "BMC auth: hardware not known; cluster timeout: member not known"
    )
