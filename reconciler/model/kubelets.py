"""Versions of kubelets, and how far one may be from its API server (kubernetes.io, "Version Skew Policy")."""

from __future__ import annotations

import re
from typing import Final

OLDER: Final = 3  # minors that a kubelet may be behind its API server; it is never newer
_SINCE: Final = (1, 25)  # an older kubelet may be one minor less behind
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


def kubelet_minor(version: str) -> tuple[int, int] | None:
    """Return major and minor of v1.31.5 or 1.31; None for another text."""
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2])) if found else None


def may_be_behind(kubelet: tuple[int, int]) -> int:
    """Return how many minors an API server may be ahead of a kubelet of this minor."""
    return OLDER if kubelet >= _SINCE else OLDER - 1
