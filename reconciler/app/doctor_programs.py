"""Checks of `doctor` that the programs on this machine are there and new enough."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import Final

from reconciler.drivers.helm.process import INSTALL_HINT, OLDEST
from reconciler.drivers.programs import ask

OLDEST_KUBECTL: Final = (1, 20)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy`: what to do; "" when there is nothing to do."""

    check: str
    ok: bool
    detail: str
    remedy: str = ""


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), version)


def program(name: str, argv: tuple[str, ...], remedy: str) -> Finding:
    ok, text = ask(*argv)
    return Finding(name, ok, text.split("\n")[0] or "not on the PATH", "" if ok else remedy)


def kubectl() -> Finding:
    ok, text = ask("kubectl", "version", "--client", "-o", "json")
    if not ok:
        remedy = "apt-get install kubernetes-client, or see kubernetes.io"
        return Finding("kubectl", False, text.split("\n")[0] or "not on the PATH", remedy)
    try:
        version = json.loads(text)["clientVersion"]
        found = int(version["major"]), int("".join(filter(str.isdigit, version["minor"])))
    except (ValueError, KeyError, TypeError):
        return Finding("kubectl", False, f"unreadable version: {text[:80]!r}", "install a kubectl of 1.20 or newer")
    fresh = found >= OLDEST_KUBECTL
    return Finding("kubectl", fresh, version["gitVersion"], "" if fresh else "1.20 is the oldest that works")


def helm() -> Finding:
    """Return whether helm is there and new enough; `version --short` prints v3.16.2+g13654a5."""
    ok, text = ask("helm", "version", "--short")
    if not ok:
        return Finding("helm", False, text.split("\n")[0] or "not on the PATH", INSTALL_HINT)
    found = re.match(r"v(\d+)\.(\d+)", text)
    if found is None:
        return Finding("helm", False, f"unreadable version: {text[:80]!r}", INSTALL_HINT)
    fresh = (int(found[1]), int(found[2])) >= OLDEST
    return Finding("helm", fresh, text.split("\n")[0], "" if fresh else INSTALL_HINT)
