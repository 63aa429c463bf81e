"""JSON from files, clusters, hosts and databases, none of which is trusted to be sane."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse as `json.loads` does, and raise ValueError also for nesting that is too deep for Python."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
