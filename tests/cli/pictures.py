"""`python -m tests.cli.pictures [DIRECTORY]`: take the pictures of a terminal that the docs show, of `reconciler demo`.

What the demo prints goes through a terminal that is not ours (pyte). Rich writes its screen as SVG for Chromium.
"""

from __future__ import annotations

import copy
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pyte
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.conftest import ROOT
from tests.web.pictures import PICTURES

WIDTH, HEIGHT, TALL = 116, 34, 300
BEGINS = {"plan": "$ reconciler plan ", "apply": "$ reconciler apply "}
FOOTER = re.compile(r"run-\S+.*\b(\d+)/(\d+) done")
WAIT_S = 600


def main(directory: Path = PICTURES) -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    screens = _screens(_chunks())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for name, lines in screens.items():
            page = browser.new_page(device_scale_factor=1.5)
            page.set_content(_svg(name, lines))
            page.locator("svg").screenshot(path=directory / f"terminal-{name}.png")
        browser.close()
    return 0 if set(screens) == set(BEGINS) else 1


def _chunks() -> Iterator[str]:
    """Yield what `reconciler demo` prints on a terminal of ours."""
    with tempfile.TemporaryDirectory(prefix="terminal-") as home:
        leader, follower = pty.openpty()
        os.set_blocking(leader, True)
        size = {"COLUMNS": str(WIDTH), "LINES": str(HEIGHT), "TERM": "xterm-256color", "HOME": home, "TMPDIR": home}
        command = ["timeout", str(WAIT_S), sys.executable, "-m", "reconciler", "demo", "--time-scale", "20"]
        demo = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | size, stdout=follower, stderr=follower, stdin=follower
        )
        os.close(follower)
        try:
            while True:
                try:
                    chunk = os.read(leader, 65536)
                except OSError:  # Linux says so when the last writer has closed it
                    break
                if not chunk:
                    break
                yield chunk.decode(errors="replace")
        finally:
            demo.terminate()
            demo.wait(30)
            os.close(leader)


def _screens(chunks: Iterator[str]) -> dict[str, list[Text]]:
    """Return the beginning of the plan, and the screen when half of the nodes were done."""
    found: dict[str, list[Text]] = {}
    plan, plan_stream = _terminal(TALL)
    screen, stream = _terminal(HEIGHT)
    text = ""
    for chunk in chunks:
        stream.feed(chunk)
        text += chunk
        if "plan" not in found and BEGINS["apply"] in text:
            begin, end = text.index(BEGINS["plan"]), text.index("=== Apply")
            plan_stream.feed(text[begin:end])
            found["plan"] = [*_lines(plan)[:HEIGHT], Text("...", "dim")]
        counts = [match for line in screen.display if (match := FOOTER.search(line))]
        if counts and 2 * int(counts[-1][1]) >= int(counts[-1][2]):
            found["apply"] = _lines(copy.deepcopy(screen))
            break
    return found


def _terminal(height: int) -> tuple[pyte.Screen, pyte.Stream]:
    screen = pyte.Screen(WIDTH, height)
    return screen, pyte.Stream(screen)


def _lines(screen: pyte.Screen) -> list[Text]:
    """Return the lines of a screen, without the empty ones at its end."""
    found = []
    for row in range(screen.lines):
        line = Text()
        for column in range(screen.columns):
            cell = screen.buffer[row][column]
            style = Style(
                color=_colour(cell.fg),
                bgcolor=_colour(cell.bg),
                bold=cell.bold,
                italic=cell.italics,
                reverse=cell.reverse,
            )
            line.append(cell.data, style)
        line.rstrip()
        found.append(line)
    while found and not found[-1].plain:
        found.pop()
    return found


def _colour(name: str) -> str | None:
    """Return Rich's name of a colour of pyte's."""
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    bright = name.removeprefix("bright")
    known = {"brown": "yellow"}.get(bright, bright)
    return f"bright_{known}" if bright != name else known


def _svg(name: str, lines: list[Text]) -> str:
    console = Console(record=True, width=WIDTH, file=StringIO(), color_system="truecolor")
    for line in lines:
        console.print(line, no_wrap=True)
    drawn = console.export_svg(title=f"reconciler {name}")
    return re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # fonts of another host


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
