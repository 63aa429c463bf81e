"""Memory modules as BMCs list them."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.drivers.redfish.devices import memory
from reconciler.drivers.redfish.fields import Document, Unknown


def module(state: str = "Enabled", size: int | None = 65536) -> Document:
    return {"Id": "A1", "Status": {"State": state}, "CapacityMiB": size}


def test_modules_that_work_are_counted() -> None:
    assert memory([module(), module("Absent", None), module()]) == (2, 2 * 65536 * 2**20)


@pytest.mark.parametrize("listed", [[], [module("Absent", None)] * 32])
def test_no_module_at_all_is_a_list_that_the_bmc_has_lost(listed: list[Any]) -> None:
    """No machine runs without memory: all nodes of a fleet whose BMCs restart would be isolated for it."""
    with pytest.raises(Unknown, match="lists no memory module"):
        memory(listed)
