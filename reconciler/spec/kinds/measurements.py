"""The measurements of a boot that a spec declares: digests that a node's TPM must have signed before it serves."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from reconciler.spec.kinds.base import Sha256
from reconciler.strict_yaml.models import Checked, Matching, Model, Name, Text

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)\n-----END CERTIFICATE-----\n*")


def check_certificates(text: str) -> None:
    """Raise ValueError unless the text has the form of PEM certificates. The gate reads them."""
    blocks = _PEM.findall(text)
    if not blocks or _PEM.sub("", text).strip():
        raise ValueError("not PEM certificates")
    try:
        for block in blocks:
            base64.b64decode(block.replace("\n", ""), validate=True)
    except binascii.Error:
        raise ValueError("not PEM certificates: one is not base64") from None


Phase = Annotated[str, Matching(r"[a-z][a-z0-9-]*(:[a-z][a-z0-9-]*)*", "a phase like enter-initrd:leave-initrd")]
Index = Annotated[str, Matching(r"[1-9][0-9]{0,2}", "the index of a measurement, like 2")]
ComponentId = Annotated[str, Matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", "an Id like HGX_IRoT_GPU_0")]
Bits = Annotated[str, Matching(r"([0-9a-f]{2}){1,512}", "lower-case hex digits, two for each byte")]
Digests = Annotated[tuple[Sha256, ...], Field(min_length=1)]


class BootMeasurements(Model):
    """The measurements of a boot, as the build of the image or of the installer predicts them."""

    applications: Digests = Field(
        description="PCR 4: Authenticode digests of the EFI programs, in the order in which they start: the boot "
        "loader, then the UKI."
    )
    pcr11: Mapping[Phase, Sha256] = Field(
        min_length=1,
        description="Values of PCR 11 by the phase of the boot, as systemd-measure prints them. A quote in any of "
        "these phases is accepted.",
    )


class InstallerMeasurements(BootMeasurements):
    """The measurements of a boot of the installer's medium."""

    loaders: tuple[Sha256, ...] = Field(
        default=(),
        description="PCR 4: Authenticode digests of the programs that load the medium over PXE, such as iPXE: "
        "`reconciler image digest FILE`. They may start before it.",
    )


class SecureBootKeys(Model):
    """Digests of the contents of UEFI variables, each with those that are allowed: sha256sum of the .esl file."""

    pk: Digests = Field(description="The platform key.")
    kek: Digests = Field(description="The keys that may change db and dbx.")
    db: Digests = Field(description="The keys that programs may be signed with.")
    dbx: Digests = Field(description="What is forbidden. List the old and the new one while an update is rolled out.")
    authorities: tuple[Sha256, ...] = Field(
        default=(), description="Other variables that programs were verified with, like the MokList of shim."
    )


class FirmwareReference(Model):
    """The measurements of firmware of these versions: learned from one machine, and reviewed."""

    versions: Mapping[Name, Text] = Field(
        min_length=1, description="Versions by firmware component of this profile. The BMC tells which a node has."
    )
    pcr0: Sha256 | None = Field(default=None, description="Value of PCR 0: the firmware's code.")
    pcr2: Sha256 | None = Field(default=None, description="Value of PCR 2: the code of option ROMs.")
    pcr3: Sha256 | None = Field(default=None, description="Value of PCR 3: the data of option ROMs.")
    pcr6: Sha256 | None = Field(default=None, description="Value of PCR 6: what the maker of the machine measures.")
    applications: tuple[Sha256, ...] = Field(
        default=(), description="PCR 4: EFI programs that the firmware itself starts before the image's."
    )

    @model_validator(mode="after")
    def _says_something(self) -> FirmwareReference:
        if self.pcr0 is None:
            raise ValueError("pcr0 is missing: nothing would be known of the firmware's code")
        return self


class ComponentReference(Model):
    """The measurements of components whose firmware has these versions: learned from one machine, and reviewed."""

    versions: Mapping[Name, Text] = Field(
        min_length=1, description="Versions by firmware component of this profile. The BMC tells which a node has."
    )
    values: Mapping[Index, Bits] = Field(
        min_length=1, description="Measurements by index, as the component signs them. Others are not judged."
    )


class ComponentMeasurements(Model):
    """Components of one kind that must sign what they measured, by SPDM through the BMC."""

    ids: tuple[ComponentId, ...] = Field(
        min_length=1,
        description="Ids in the BMC's ComponentIntegrity, like HGX_IRoT_GPU_0. A node is not admitted before each has "
        "signed.",
    )
    authorities: Annotated[str, Checked(check_certificates, lines=True)] = Field(
        description="Certificates (PEM) of the CAs of the components' makers, of which each is trusted itself."
    )
    references: tuple[ComponentReference, ...] = Field(
        default=(),
        description="References by version. Absent: a component must sign, and what it measured is not judged, as on "
        "the canary that references are learned from.",
    )


class PlatformMeasurements(Model):
    """The measurements of this model of machine."""

    endorsement_authorities: Annotated[str, Checked(check_certificates, lines=True)] | None = Field(
        default=None,
        description="Certificates (PEM) of the CAs of the TPMs' makers. Absent: a TPM is known by its first enrolment "
        "alone.",
    )
    secure_boot: SecureBootKeys | None = Field(
        default=None,
        description="PCR 7: Secure Boot is on, under these keys. Images that declare measurements need it.",
    )
    firmware: tuple[FirmwareReference, ...] = Field(
        default=(),
        description="References by version. Absent: the firmware is not judged, as on the canary that they are learned "
        "from.",
    )
    components: tuple[ComponentMeasurements, ...] = Field(
        default=(), description="GPUs and other components that the BMC lists in ComponentIntegrity."
    )

    @model_validator(mode="after")
    def _says_something(self) -> PlatformMeasurements:
        if self.secure_boot is None and (self.firmware or self.endorsement_authorities is not None):
            raise ValueError("secureBoot is missing: firmware and endorsementAuthorities are judged together with it")
        if self.secure_boot is None and not self.components:
            raise ValueError("neither secureBoot nor components are given: nothing would be measured")
        return self

    @field_validator("components")
    @classmethod
    def _each_once(cls, components: tuple[ComponentMeasurements, ...]) -> tuple[ComponentMeasurements, ...]:
        ids = [one for group in components for one in group.ids]
        twice = sorted({one for one in ids if ids.count(one) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is declared twice")
        return components
