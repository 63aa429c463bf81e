"""The software of an image, by the names of `contents`, with versions as complete as its tools print them."""

from __future__ import annotations

from collections.abc import Mapping

SOFTWARE: Mapping[str, str] = {"cuda": "12.8.1", "nccl": "2.26.2", "containerRuntime": "1.7.24", "kubelet": "1.31.4"}
KERNEL, DRIVER = "6.8.0-48-generic", "570.124.06"  # of an image that does not say
_PARTS = 3  # of a version of any of them


def installed(contents: Mapping[str, object]) -> dict[str, str]:
    """Return what an image with these contents has. What they don't name is there too, in some version."""
    return {name: _complete(str(contents.get(name, version))) for name, version in SOFTWARE.items()}


def _complete(version: str) -> str:
    number = version.rpartition(" ")[2].rpartition("/")[2].removeprefix("v")
    return number + ".0" * (_PARTS - 1 - number.count("."))
