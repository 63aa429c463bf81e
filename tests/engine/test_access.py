"""The key of an engine's certificate: nobody else may read it, and a service is given it as a credential."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.app.clocks import RealClock
from reconciler.app.engine import CertificateWatch, Engine
from reconciler.app.ports import FleetRequest
from reconciler.drivers.engine.access import SOON, EngineAccess, EngineError, expiry, wall_clock
from reconciler.drivers.engine.client import EngineClient
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
    for directory, taken in ((folder, as_credential), (tmp_path, as_credential), (tmp_path / "other", elsewhere)):
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(directory))
        if taken:
            access.check()
            continue
        with pytest.raises(UsageError, match="is open to others"):
            access.check()


def test_an_expired_certificate_is_told_in_words_and_one_that_will_expire_beforehand(tmp_path: Path) -> None:
    """TLS alone says of it that a connection failed, at whichever side it is."""
    folder = make_certificates(tmp_path / "engine", lasts=timedelta(days=9, hours=1))
    access = EngineAccess("tls://127.0.0.1:8786", folder)
    access.check()
    assert len(access.expiring()) == 2
    assert all("expires in 9 days" in one for one in access.expiring())
    assert str(folder / "cert.pem") in access.expiring()[0]
    old = make_certificates(tmp_path / "old", lasts=-timedelta(minutes=5))
    with pytest.raises(UsageError, match=r"old/cert.pem expired on 2\d{3}-.* UTC: have the CA of the engine"):
        EngineAccess("tls://127.0.0.1:8786", old).check()
    assert EngineAccess("tls://127.0.0.1:8786", make_certificates(tmp_path / "long")).expiring() == ()


@given(st.timedeltas(timedelta(days=-400), timedelta(days=400)))
def test_nothing_is_told_of_a_certificate_that_lasts(left: timedelta) -> None:
    told = expiry("x", wall_clock() + left)
    assert bool(told) == (left <= SOON or left - SOON < timedelta(minutes=1))
    if timedelta(minutes=1) < left < SOON:
        assert " expires in " in told
    if left <= timedelta():
        assert " expired on " in told


def test_a_leader_tells_of_certificates_at_its_first_pass_and_once_a_day(tmp_path: Path) -> None:
    told: list[str] = []
    request = FleetRequest(
        Path("fleet-spec"), engine="tls://127.0.0.1:1",
        engine_tls=make_certificates(tmp_path / "engine", lasts=timedelta(days=3)),
    )  # fmt: skip
    engine = Engine(request)
    watch = CertificateWatch(engine, lambda event: told.append(event.message))  # type: ignore[union-attr]
    now = datetime(2026, 11, 1, tzinfo=UTC)
    watch.pass_ended(now)
    assert told == [], "nothing was read by workers yet"
    assert engine.observer(RealClock(), lambda: ()) is not None
    for hours in (0, 1, 23, 24, 47):
        watch.pass_ended(now + timedelta(hours=hours))
    assert len(told) == 4, "of two certificates, twice"
    assert "expires in 2 days" in told[0]
    assert told[0].endswith("and start again")


def test_of_several_cas_the_one_that_lasts_longest_counts(tmp_path: Path) -> None:
    """As while a CA is exchanged: the old one stands first until no certificate of its own is left."""
    folder, old = make_certificates(tmp_path / "new"), make_certificates(tmp_path / "old", lasts=-timedelta(minutes=5))
    new = (folder / "ca.pem").read_bytes()
    for both in ((old / "ca.pem").read_bytes() + new, new + (old / "ca.pem").read_bytes()):
        (folder / "ca.pem").write_bytes(both)
        access = EngineAccess("tls://127.0.0.1:8786", folder)
        access.check()
        assert access.expiring() == ()


@pytest.mark.parametrize("text", [None, "", "half of a file"])
def test_a_certificate_that_can_not_be_read_now_is_told_and_nobody_waits_for_it(
    tmp_path: Path, text: str | None
) -> None:
    folder = make_certificates(tmp_path / "engine")
    access = EngineAccess("tls://127.0.0.1:1", folder)
    if text is None:
        (folder / "cert.pem").unlink()
    else:
        (folder / "cert.pem").write_text(text)
    assert any("cert.pem can't be read" in one for one in access.expiring())

    async def ask() -> str:
        client = EngineClient(access)
        async with asyncio.timeout(60), client.working():
            with pytest.raises(EngineError) as raised:
                await client.workers()
        return str(raised.value)

    assert "does not answer" in asyncio.run(ask())
