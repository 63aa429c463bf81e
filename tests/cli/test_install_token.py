"""The token of an install is in no journal: no row, no document and no page of an install under way has it."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.converge.actions.install_plan import Install
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.install import InstallDocument, InstallImage, MachineIdentity, RootDisk, dump_contract
from reconciler.model.install_progress import InstallAttempt, digest_of
from tests.cli.shell import SPEC, reconciler

NODE, TOKEN = "gpu-a003", "5f0c1e7a9b3d4826a1c0ffee15deadbe"


@pytest.fixture
def under_way(tmp_path: Path) -> Path:
    """A ledger with an install that is being served."""
    place, now = tmp_path / "ledger.sqlite", datetime.now(UTC) - timedelta(minutes=1)
    document = InstallDocument(
        node=NODE, hostname=NODE, nonce="n", machine=MachineIdentity(serial="S", uuid=None),
        image=InstallImage(name="i", version="1", url="https://images.example/i", sha256="0" * 64),
        root_disk=RootDisk(serial="D"),
    )  # fmt: skip
    ledger = SqlLedger(place)
    fence = ledger.acquire("demo", "runner", 3600, now).token
    attempt = ledger.begin("r", NODE, "reimage", "", "image", {"at": now.isoformat()}, fence, now)
    ledger.amend(attempt, {**Install(TOKEN, document).journaled(), "started": True}, now)
    served = InstallAttempt(digest_of(TOKEN), NODE, dump_contract(document), "", now, token=TOKEN)
    ledger.save_install(served, now, "the installer fetched its document")
    ledger.close()
    return place


def test_of_all_tables_one_column_has_the_token_of_an_install_under_way(under_way: Path) -> None:
    found = []
    with sqlite3.connect(under_way) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = database.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in rows.description]
            found += [
                (table, name) for row in rows for name, cell in zip(names, row, strict=True) if TOKEN in str(cell)
            ]
    assert found == [("install_attempts", "token")]


@pytest.mark.parametrize("output", ["human", "json", "markdown"])
def test_what_is_printed_of_an_install_under_way_lacks_its_token(under_way: Path, output: str) -> None:
    for words in (["history", NODE], ["audit", "list"], ["audit", "verify"]):
        done = reconciler(*words, "--ledger", under_way, "-o", output)
        assert done.code == 0, done.err
        assert TOKEN not in done.out + done.err


def test_the_page_lacks_it(demo: Path, under_way: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    done = reconciler("report", SPEC, "--ledger", under_way, "--html", page, "--observation", demo)
    assert done.code == 0, done.err
    texts = [file.read_text() for file in page.rglob("*") if file.is_file()]
    assert any(NODE in text for text in texts)
    assert not [text for text in (*texts, done.out, done.err) if TOKEN in text]
