"""GoldenImage: the versions of an operating system image, their contents, and the drives they may be written to."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from reconciler.spec.kinds.base import NOT_ENFORCED, Resource, Sha256, WebUrl
from reconciler.spec.kinds.measurements import BootMeasurements
from reconciler.spec.kinds.settings import RootDiskRule
from reconciler.strict_yaml.models import Checked, Lines, Matching, Model, Name, Text


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


AbsolutePath = Annotated[str, Matching(r"/\S*", "an absolute path")]


class Signature(Model):
    """The signature of an image's publisher, over the line `<name> <version> <sha256>`."""

    minisign: Annotated[str, Checked(check_minisig, lines=True)] | None = Field(
        default=None, description="The four lines of the .minisig file."
    )
    key: Name | None = Field(
        default=None, description="Name of the minisign public key, which is defined outside the spec."
    )
    cosign: Annotated[Lines | None, NOT_ENFORCED] = Field(default=None, description="A cosign bundle.")

    @model_validator(mode="after")
    def _complete(self) -> Signature:
        if self.cosign is None and (self.minisign is None or self.key is None):
            raise ValueError("a signature needs both minisign and key")
        return self


class ImageVersion(Model):
    """One version of an image."""

    version: Text = Field(description="Version, unique within the image.")
    url: WebUrl = Field(description="Where the installer fetches the image.")
    sha256: Sha256 = Field(description="Digest of the file at `url`.")
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
    preserve: tuple[AbsolutePath, ...] = Field(default=(), description="Mount points that an install keeps.")
    measurements: BootMeasurements | None = Field(
        default=None,
        description="What a machine measures that boots this image. A node is then admitted only with a quote of its "
        "TPM that agrees.",
    )


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
