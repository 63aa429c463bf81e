"""Versions of the software of an image, as a spec asks for them and as tools tell them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Final

from reconciler.diff import normalise
from reconciler.diff.readings import Missing
from reconciler.model.vocab import UnknownReason

FACTS: Final = {  # part of the image -> the fact of the host
    "cuda": "cuda", "nccl": "nccl", "containerRuntime": "container_runtime", "kubelet": "kubelet",
}  # fmt: skip


def version_reader(wanted: str) -> Callable[[str], Hashable]:
    """Return a reader of a version, which gives `wanted` when it is that one or, of 12.8, one of its updates.

    A tool that tells fewer fields than are wanted, as nvcc does, does not tell whether it is that version.
    """
    name, asked = _parts(wanted)

    def read(found: str) -> Hashable:
        kind, fields = _parts(found)
        if name and kind and name != kind:
            return found
        if fields[: len(asked)] == asked:
            return wanted
        if asked[: len(fields)] == fields:
            return Missing(UnknownReason.UNSUPPORTED, f"the host tells no more than {found}")
        return found

    return read


def _parts(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the name, "" without one, and the fields of a version like 1.7.24 or containerd://1.7.24.

    What a distribution adds, as in 2.26.2-1+cuda12.8, is left out.
    """
    name, _, number = normalise.version(text).replace("://", " ").rpartition(" ")
    return name, tuple(re.split(r"[-+~]", normalise.version(number))[0].split("."))
