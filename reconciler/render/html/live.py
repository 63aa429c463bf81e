"""The files of the live page, which asks the API of `run` for all that it shows.

It has the colours and tables of the report, and its policy forbids every request but those to the server that it came
from. Nothing is put into it here: it is the same for every fleet.

`live_kept/` has the libraries of its charts as npm has them, with their licences and digests (`make charts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from jinja2 import Environment, PackageLoader

_STYLES: Final = ("10-base.css", "20-tables.css", "30-map.css", "40-node.css")
_SCRIPTS: Final = ("20-dom.js",)
_KEPT: Final = ("d3.min.js", "plot.umd.min.js")  # the second takes the first from the window


@cache
def live_page() -> Mapping[str, tuple[str, str]]:
    """Return the files of the page by path, as text and media type."""
    kept = _sources("live_kept")
    return {
        "/": (_sources("live_assets")["page.html"], "text/html; charset=utf-8"),
        "/page.css": (_joined(".css", _STYLES), "text/css; charset=utf-8"),
        "/page.js": (_joined(".js", _SCRIPTS), "text/javascript; charset=utf-8"),
        "/charts.js": ("\n".join(kept[name] for name in _KEPT), "text/javascript; charset=utf-8"),
    }


def _joined(suffix: str, shared: tuple[str, ...]) -> str:
    """Return what the report has, and then our own files in the order of their names."""
    report, own = _sources("assets"), _sources("live_assets")
    return "\n".join(
        [*(report[name] for name in shared), *(own[name] for name in sorted(own) if name.endswith(suffix))]
    )


def _sources(folder: str) -> dict[str, str]:
    made = Environment(loader=PackageLoader("reconciler.render.html", folder), autoescape=True)
    assert made.loader is not None
    return {name: made.loader.get_source(made, name)[0] for name in made.loader.list_templates()}
