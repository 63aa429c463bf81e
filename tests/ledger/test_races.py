"""Two runners at once: threads, each with a ledger of its own as another process would have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.errors import LeaseHeld
from reconciler.model.records import Lease
from tests.ledger.conftest import Open

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
RUNNERS = 6
T = TypeVar("T")


def together(work: Callable[[int], T]) -> list[T]:
    barrier = threading.Barrier(RUNNERS)

    def one(number: int) -> T:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(RUNNERS) as pool:
        return list(pool.map(one, range(RUNNERS)))


def test_only_one_of_many_gets_the_lease(reopen: Open) -> None:
    ledgers = [reopen() for _ in range(RUNNERS)]

    def grab(number: int) -> int | None:
        try:
            return ledgers[number].acquire("demo", f"runner {number}", 60, T0).token
        except LeaseHeld:
            return None

    for _ in range(5):
        (token,) = [token for token in together(grab) if token is not None]
        ledgers[0].drop(Lease("demo", "", token, T0))


def test_scopes_never_share_a_token(reopen: Open) -> None:
    ledgers = [reopen() for _ in range(RUNNERS)]
    tokens = together(lambda number: ledgers[number].acquire(f"fleet {number}", "x", 60, T0).token)
    assert len(set(tokens)) == RUNNERS


def test_many_create_the_same_ledger_once(where: str) -> None:
    def create(_number: int) -> str:
        ledger = SqlLedger(where)
        try:
            return ledger.id
        finally:
            ledger.close()

    assert len(set(together(create))) == 1
