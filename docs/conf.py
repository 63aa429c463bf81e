"""Sphinx: `make docs` builds these pages with every warning as an error."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from generated import fill  # noqa: E402 - found on the path that is set above

from reconciler import __version__  # noqa: E402 - found on the path that is set above

project = "reconciler"
version = release = __version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "reconciler"
html_copy_source = False
html_show_copyright = False
exclude_patterns = ["_build"]
nitpicky = True
myst_heading_anchors = 3

# A link to a Markdown file outside of docs/, which is a page on GitHub, is a file to download here.
_OUTSIDE = re.compile(r"\]\((\.\./\.\./(?!docs/)[^)#]+\.md)\)")


def _read(_app: Any, _name: str, source: list[str]) -> None:
    source[0] = _OUTSIDE.sub(r"](path:\1)", fill(source[0]))


def setup(app: Any) -> None:
    app.connect("source-read", _read)
