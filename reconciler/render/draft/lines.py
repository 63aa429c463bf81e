"""The lines that all drafted files have in common."""

from __future__ import annotations

import textwrap
from typing import Final

from reconciler.render.text import plain
from reconciler.strict_yaml.edit import scalar

_API: Final = "apiVersion: reconciler.dev/v1alpha1"


def resource(kind: str, name: str) -> list[str]:
    return [_API, f"kind: {kind}", f"metadata: {{name: {scalar(name, flow=True)}}}", "spec:"]


def comment(text: str, indent: int = 0) -> list[str]:
    """Lines of a comment. Machines have a say in it."""
    lines = textwrap.wrap(plain(text, 1000), 116 - indent, break_long_words=False, break_on_hyphens=False)
    return [" " * indent + f"# {line}" for line in lines]
