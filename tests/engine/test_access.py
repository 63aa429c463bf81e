"""The key of an engine's certificate: nobody else may read it, and a service is given it as a credential."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.drivers.engine.access import EngineAccess
from reconciler.model.errors import UsageError
from tests.engine.world import make_certificates


@pytest.mark.parametrize(
    ("mode", "as_credential", "elsewhere"),
    [(0o600, True, True), (0o400, True, True), (0o440, True, False), (0o640, True, False), (0o460, False, False),
     (0o444, False, False)],
)  # fmt: skip
def test_a_key_that_others_may_read_is_refused_unless_systemd_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, as_credential: bool, elsewhere: bool
) -> None:
    """A credential has mode 440 with User= (systemd#29435): refused, the worker's unit would never start."""
    folder = make_certificates(tmp_path / "engine")
    (folder / "key.pem").chmod(mode)
    access = EngineAccess("tls://127.0.0.1:8786", folder)
    for directory, taken in ((folder, as_credential), (tmp_path, elsewhere)):
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(directory))
        if taken:
            access.check()
            continue
        with pytest.raises(UsageError, match="is open to others"):
            access.check()
