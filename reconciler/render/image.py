"""Show what an inspection of an image found."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.images import ImageInspection, ImageUki
from reconciler.render.text import plain

_NAMES = ("IMAGE_ID", "IMAGE_VERSION", "PRETTY_NAME")


def render_inspection(found: ImageInspection) -> str:
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: ImageInspection) -> Iterator[str]:
    yield f"file         {found.file.format.value}, {found.file.size} bytes, sha256 {found.file.sha256}"
    for part in found.partitions:
        yield f"partition    {plain(part.name):12} {part.size / 2**20:8,.1f} MiB  id {part.id}  type {part.type}"
    for uki in found.ukis:
        yield from _uki(uki)
    for problem in found.problems:
        yield f"problem      {plain(problem)}"


def _uki(uki: ImageUki) -> Iterator[str]:
    yield f"UKI          {plain(uki.path)}, systemd-stub {uki.stub or 'unknown'}"
    yield f"  sections   {', '.join(f'{plain(name)} {size}' for name, size in uki.sections.items())}"
    for name in _NAMES:
        if name in uki.os_release:
            yield f"  os-release {name}={plain(uki.os_release[name])}"
    yield f"  cmdline    {plain(uki.cmdline)}"
    yield f"  roothash   {uki.roothash or 'none: root is not checked'}"
    for name, digest in uki.applications.items():
        yield f"  PCR 4      {digest}  {name}"
    for path, value in uki.pcr11.items():
        yield f"  PCR 11     {value}  {path.rpartition(':')[2] or 'before systemd'}"
