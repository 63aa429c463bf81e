"""Progress of an install, in words that the page may show."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from reconciler.model.install import InstallPhase
from reconciler.model.install_progress import InstallAttempt, progress_words


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "waits for its installer"),
        ({"fetched": True}, "its installer has begun"),
        ({"phase": InstallPhase.STARTED, "detail": "ubuntu-gpu 2026.11.1 for n0"}, "started"),
        (
            {
                "phase": InstallPhase.WRITING,
                "percent": 47,
                "detail": "2.1 of 4.3 GB written to sda (serial S1), 812 MB/s",
            },
            "writing 47 %, 812 MB/s",
        ),
        ({"phase": InstallPhase.WRITING, "percent": 0, "detail": "88.5 MB/s compressed"}, "writing 0 %, 88.5 MB/s"),
        ({"phase": InstallPhase.WRITTEN, "detail": "sda (serial S1), in 61 s"}, "written"),
    ],
)
def test_progress_in_words_names_no_part_of_the_machine(told: dict[str, Any], words: str) -> None:
    attempt = InstallAttempt("d", "n0", "{}", "", datetime(2026, 11, 21, tzinfo=UTC), **told)
    assert progress_words(attempt) == words
