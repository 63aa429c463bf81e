"""Read which deprecated APIs an API server was asked for, from its metrics. Pure.

The gauge apiserver_requested_deprecated_apis is 1 for each API that was asked for since the server started, and each
server counts for itself (kubernetes.io, "Kubernetes Deprecation Policy"). Nothing here depends on the order of labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from reconciler.model.k3s import DeprecatedApi

METRIC: Final = "apiserver_requested_deprecated_apis"
_LINE: Final = re.compile(rf"{METRIC}\{{(?P<labels>.*)\}} (?P<value>\S+)( \d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)",?')
_RELEASE: Final = re.compile(r"(\d+\.\d+)?")
_NEEDED: Final = ("group", "version", "resource", "removed_release")


def parse_deprecated(lines: Iterable[str]) -> tuple[DeprecatedApi, ...]:
    """Return the APIs whose end is decided, each once, in order. Raise ValueError for no line of this metric."""
    found = set()
    for line in lines:
        match = _LINE.fullmatch(line)
        labels = {} if match is None else dict(_LABEL.findall(match["labels"]))
        if match is None or not labels.keys() >= set(_NEEDED) or not _RELEASE.fullmatch(labels["removed_release"]):
            raise ValueError(f"no line of {METRIC}: {line[:80]!r}")
        if float(match["value"]) and labels["removed_release"]:
            found.add(DeprecatedApi(*(labels[name] for name in _NEEDED)))
    return tuple(sorted(found, key=lambda one: (one.name, one.removed)))
