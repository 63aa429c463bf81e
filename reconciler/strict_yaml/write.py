"""Write JSON values as a YAML document."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML


def as_yaml(value: Any) -> str:
    """Return a document in block style with the keys in their own order. `value`: strings, numbers, lists, mappings."""
    text = io.StringIO()
    YAML(typ="rt", pure=True).dump(value, text)
    return text.getvalue()
