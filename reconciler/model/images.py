"""The findings of an inspection of a disk image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.model.vocab import ImageFormat


@dataclass(frozen=True, slots=True)
class ImageFile:
    """The file that is published."""

    sha256: str
    size: int
    format: ImageFormat


@dataclass(frozen=True, slots=True)
class ImagePartition:
    """A partition of the image. `start` and `size` are bytes."""

    name: str
    type: str
    id: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class ImageUki:
    """A UKI of the image, with the sizes of its sections.

    `pcr11`: values by phase of the boot, "" before the first. `applications`: Authenticode digests of the EFI programs
    that are started one after another, which PCR 4 measures.
    """

    path: str
    sections: Mapping[str, int]
    os_release: Mapping[str, str]
    kernel: str
    cmdline: str
    stub: int
    pcr11: Mapping[str, str]
    applications: Mapping[str, str]

    @property
    def roothash(self) -> str | None:
        found = [word for word in self.cmdline.split() if word.startswith("roothash=")]
        return found[-1].partition("=")[2] if found else None


@dataclass(frozen=True, slots=True)
class ImageInspection:
    """A disk image as it was found. `problems`: why it would not boot, or not be checked."""

    file: ImageFile
    partitions: tuple[ImagePartition, ...]
    ukis: tuple[ImageUki, ...]
    problems: tuple[str, ...] = ()
