from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.converge.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Builds the test's world; see World for what can differ."""
    built: list[World] = []

    def build(**differences: Any) -> World:
        built.append(World(tmp_path, **differences))
        return built[-1]

    yield build
    for one in built:
        one.ledger.close()
