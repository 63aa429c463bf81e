"""The libraries of the live page's charts: kept as they were published, with their licences, and served by us alone."""

from __future__ import annotations

import hashlib
import re

import pytest

from reconciler.render.html.live import live_page
from tests.conftest import ROOT

KEPT = ROOT / "reconciler" / "render" / "html" / "live_kept"
SCRIPT = ROOT / ".ci" / "charts.sh"


def digests() -> dict[str, str]:
    lines = (KEPT / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def test_each_kept_file_is_what_was_published() -> None:
    files = {path.name for path in KEPT.iterdir()} - {"SHA256SUMS"}
    assert digests().keys() == files
    for name, digest in digests().items():
        assert hashlib.sha256((KEPT / name).read_bytes()).hexdigest() == digest, f"{name}: make charts fetches it again"


def test_the_versions_are_those_that_the_script_fetches() -> None:
    wanted = dict(re.findall(r"^take \S+?@([\d.]+) (\S+)", SCRIPT.read_text(), re.MULTILINE))
    assert len(wanted) == 2
    for version, name in wanted.items():
        assert f"v{version} Copyright" in (KEPT / name).read_text().splitlines()[0]


@pytest.mark.parametrize("name", ["LICENSE.d3", "LICENSE.plot"])
def test_the_licence_goes_with_it(name: str) -> None:
    assert "Permission to use, copy, modify, and/or distribute this software" in (KEPT / name).read_text()


def test_the_page_serves_them_as_they_are() -> None:
    body, media = live_page()["/charts.js"]
    assert media.startswith("text/javascript")
    assert body == "\n".join((KEPT / name).read_text() for name in ("d3.min.js", "plot.umd.min.js"))
    assert "charts.js" not in live_page()["/"][0], "the first paint does not wait for them"
