"""GoldenImage: the versions of an operating system image, their contents, and the drives they may be written to."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from reconciler.model.cosign import read_bundle
from reconciler.model.units import parse_size
from reconciler.model.vocab import ImageFormat
from reconciler.spec.kinds.base import ImageUrl, KeptMount, Resource, Sha256, Size
from reconciler.spec.kinds.measurements import BootMeasurements
from reconciler.spec.kinds.settings import RootDiskRule
from reconciler.strict_yaml.models import Checked, Matching, Model, Name, Text


def check_minisig(text: str) -> None:
    """Raise ValueError unless `text` has the form of a .minisig file. The gate verifies the signature itself."""
    lines = text.strip().split("\n")
    if len(lines) != 4 or not (lines[0].startswith("untrusted comment: ") and lines[2].startswith("trusted comment: ")):
        raise ValueError("not the four lines of a .minisig file")
    try:
        signature, global_signature = (base64.b64decode(line, validate=True) for line in (lines[1], lines[3]))
    except binascii.Error:
        raise ValueError("not a .minisig file: a signature is not base64") from None
    if len(signature) != 74 or signature[:2] not in {b"Ed", b"ED"} or len(global_signature) != 64:
        raise ValueError("not a .minisig file: a signature has the wrong length or algorithm")


def _whole_mebibytes(text: str) -> None:
    if parse_size(text) % _MIB or parse_size(text) < _MIB:
        raise ValueError(f"{text!r} is not whole MiB, on which partitions begin; write it like 512MiB or 32GiB")


def _not_the_images_own(text: str) -> None:
    if text.partition("=")[0] in _OF_THE_IMAGE:
        raise ValueError(f"{text!r} would replace what the image says of its own root")


_MIB = 2**20
_OF_THE_IMAGE = ("root", "roothash", "rootfstype", "rootflags", "init", "rdinit", "initrd")

PartitionSize = Annotated[Size, Checked(_whole_mebibytes)]
KernelArgument = Annotated[
    str, Matching(r"[!#-~]+", "a kernel argument; it has no blanks or quotes"), Checked(_not_the_images_own)
]


class Signature(Model):
    """The signature of an image's publisher, over the line `<name> <version> <sha256>`: of minisign or of cosign."""

    minisign: Annotated[str, Checked(check_minisig, lines=True)] | None = Field(
        default=None, description="The four lines of the .minisig file."
    )
    key: Name = Field(description="Name of the public key, which is defined outside the spec.")
    cosign: Annotated[str, Checked(read_bundle, lines=True)] | None = Field(
        default=None, description="What `cosign sign-blob --key` prints or writes as a bundle, of an ECDSA P-256 key."
    )

    @model_validator(mode="after")
    def _one_of(self) -> Signature:
        if (self.cosign is None) == (self.minisign is None):
            raise ValueError("a signature is one of minisign and cosign")
        return self

    @property
    def text(self) -> str:
        return self.minisign or self.cosign or ""


class DiskLayout(Model):
    """The partitions of the root disk. An install writes the one of two roots that is not in use, and no other."""

    esp: PartitionSize = Field(description="Boot loader and kernels of two versions.")
    root: PartitionSize = Field(description="Each of the two roots. The hash tree of each has a tenth of it.")
    state: PartitionSize = Field(description="What a node keeps: its keys and facts, and /var.")
    data: bool = Field(default=True, description="Whether a partition `data` takes what is left of the disk.")


class ImageVersion(Model):
    """One version of an image."""

    version: Text = Field(description="Version, unique within the image.")
    url: ImageUrl = Field(
        description="Where the installer fetches the image: http, https, or an artifact in a registry, which is "
        "oci://registry/repository@sha256:..."
    )
    sha256: Sha256 = Field(description="Digest of the file at `url`; of an artifact, of its one layer.")
    format: ImageFormat = Field(default=ImageFormat.RAW_ZSTD, description="A disk with a GPT, compressed or not.")
    size: Size | None = Field(default=None, description="Size of the file at `url`, like 812345678B.")
    signature: Signature | None = Field(
        default=None, description="Signature of the publisher. Absent: the image is not trusted."
    )
    contents: Mapping[Annotated[str, Matching(r"[a-z][A-Za-z0-9]*", "a name of a part, like kernel")], Text] = Field(
        default={},
        description="Versions of the parts of the image. kernel, driver, cuda (the toolkit), nccl, containerRuntime "
        "and kubelet are compared with the running host; of the last four, 12.8 means any update of 12.8.",
    )
    hardware: tuple[Name, ...] = Field(default=(), description="Compatible HardwareProfiles. Absent: all.")
    root_disk: RootDiskRule | None = Field(default=None, description="Which drive the image may be written to.")
    layout: DiskLayout | None = Field(
        default=None, description="Partitions of the root disk. Absent: an install writes the image over all of it."
    )
    preserve: tuple[KeptMount, ...] = Field(
        default=(), description="Mount points of the partitions that an install keeps: /state, /data."
    )
    in_place: bool = Field(
        default=True,
        description="Whether a node that is well and runs this layout writes the other slot itself, for which preserve "
        "must name all that an install would make anew. false: each install boots the installer.",
    )
    command_line: Text | None = Field(
        default=None,
        description="The command line in the image's UKI, as `image build` prints it. With it, arguments that the "
        "image lacks are refused before a node is touched.",
    )
    kernel_arguments: tuple[KernelArgument, ...] = Field(
        default=(),
        description="Arguments that the kernel must boot with. An installer can't add to the command line that is "
        "signed with the image, and refuses an image that lacks one of them.",
    )
    measurements: BootMeasurements | None = Field(
        default=None,
        description="What a machine measures that boots this image. A node is then admitted only with a quote of its "
        "TPM that agrees.",
    )

    @model_validator(mode="after")
    def _keeps_what_is_there(self) -> ImageVersion:
        if self.preserve and self.layout is None:
            raise ValueError("preserve needs a layout: without one, an install writes the whole disk")
        if "/data" in self.preserve and self.layout is not None and not self.layout.data:
            raise ValueError("preserve names /data, and the layout has no data partition")
        return self


class GoldenImageSpec(Model):
    """The versions of an image."""

    versions: tuple[ImageVersion, ...] = Field(min_length=1, description="Versions that nodes may pin.")

    @field_validator("versions")
    @classmethod
    def _unique(cls, versions: tuple[ImageVersion, ...]) -> tuple[ImageVersion, ...]:
        seen: set[str] = set()
        for version in versions:
            if version.version in seen:
                raise ValueError(f"version {version.version!r} is listed twice")
            seen.add(version.version)
        return versions


class GoldenImage(Resource):
    """An operating system image and its versions."""

    kind: Literal["GoldenImage"] = Field(description="GoldenImage.")
    spec: GoldenImageSpec = Field(description="Versions of the image.")
