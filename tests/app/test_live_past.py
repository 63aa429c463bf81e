"""Answers about the past: made once, beside one another, and no more of them than there are spans."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from reconciler.app.live.past import FRESH, SPANS, LivePast
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.desired import Fleet
from reconciler.model.period_report import Past
from reconciler.model.plan import Plan

NOW = datetime(2026, 11, 27, 8, 0, tzinfo=UTC)


class Books:
    """A ledger without a past, which counts how often it is read. It can be slow for one kind of question."""

    def __init__(self) -> None:
        self.reads: list[timedelta] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def past(self, start: datetime, end: datetime) -> Past:
        self.reads.append(end - start)
        self.begun.set()
        assert self.go_on.wait(30)
        return Past()

    def nodes(self, names: Sequence[str]) -> dict[str, Any]:
        assert not names
        return {}


class Nothing:
    nodes: dict[str, Any] = {}  # noqa: RUF012 - it stays empty
    rollouts = ()


def ask(past: LivePast, books: Books, days: int) -> int:
    return len(past.availability(cast("SqlLedger", books), cast("Fleet", Nothing), days))


@pytest.fixture
def books() -> Books:
    found = Books()
    found.go_on.set()
    return found


def test_ninety_questions_are_read_in_as_many_spans_as_there_are(books: Books) -> None:
    past = LivePast(lambda: NOW)
    assert [ask(past, books, days) for days in range(1, 91)] == list(range(1, 91))
    assert len(books.reads) == len(SPANS)


def test_an_answer_is_made_anew_when_it_is_old(books: Books) -> None:
    clock = [NOW]
    past = LivePast(lambda: clock[0])
    ask(past, books, 7)
    clock[0] += FRESH - timedelta(seconds=1)
    ask(past, books, 7)
    assert len(books.reads) == 1
    clock[0] += timedelta(seconds=1)
    ask(past, books, 7)
    assert len(books.reads) == 2


def test_a_slow_answer_is_made_once_and_holds_no_other(books: Books) -> None:
    books.go_on.clear()
    past = LivePast(lambda: NOW)
    with ThreadPoolExecutor(4) as threads:
        slow = [threads.submit(ask, past, books, 30) for _ in range(3)]
        assert books.begun.wait(30)
        try:
            other = threads.submit(past.rollouts, cast("SqlLedger", books), cast("Plan", Nothing))
            assert other.result(30) == []
            assert not any(one.done() for one in slow)
        finally:
            books.go_on.set()
        assert [one.result(30) for one in slow] == [30, 30, 30]
    assert len(books.reads) == 1


def test_an_answer_that_failed_is_tried_again() -> None:
    past = LivePast(lambda: NOW)

    class Broken(Books):
        def past(self, start: datetime, end: datetime) -> Past:
            self.reads.append(end - start)
            if len(self.reads) == 1:
                raise OSError("the database is away")
            return Past()

    books = Broken()
    with pytest.raises(OSError, match="away"):
        ask(past, books, 7)
    assert ask(past, books, 7) == 7


def test_an_answer_that_takes_longer_than_it_may_be_old_is_made_once(books: Books) -> None:
    books.go_on.clear()
    clock = [NOW]
    past = LivePast(lambda: clock[0])
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(ask, past, books, 30)
        assert books.begun.wait(30)
        try:
            clock[0] += 2 * FRESH
            past.rollouts(cast("SqlLedger", books), cast("Plan", Nothing))  # every question drops what is old
        finally:
            books.go_on.set()
        assert slow.result(30) == 30
    ask(past, books, 30)
    clock[0] += FRESH - timedelta(seconds=1)
    ask(past, books, 30)
    assert len(books.reads) == 1
    clock[0] += timedelta(seconds=1)
    ask(past, books, 30)
    assert len(books.reads) == 2
