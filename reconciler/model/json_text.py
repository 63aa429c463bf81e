"""JSON from files, clusters, hosts and databases, none of which is trusted to be sane."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """As `json.loads`, and ValueError too for what is nested so deep that Python gives up on it."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
