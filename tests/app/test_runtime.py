"""The name under which others see our leases and holds."""

from __future__ import annotations

import getpass
import os

import pytest

from reconciler.app.runtime import whoami


def test_a_uid_without_a_name_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose image has no passwd entry for it: the loop ended with a traceback there."""
    monkeypatch.delenv("RECONCILER_ACTOR", raising=False)

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert whoami().startswith(f"uid {os.getuid()}@")
    monkeypatch.setenv("RECONCILER_ACTOR", "ann")
    assert whoami() == "ann"
