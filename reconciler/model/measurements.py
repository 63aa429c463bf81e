"""The measurements that a spec declares of a boot: digests that a quote of the TPM is judged by (DESIGN section 7.4).

Digests are SHA-256 in hexadecimal. Those of components, which sign them by SPDM, are what each component says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reconciler.model.privacy import FreeText, PublicText, Unpublished


@dataclass(frozen=True, slots=True)
class BootMeasurements:
    """The measurements of an image, or of the installer: what its build predicts."""

    applications: tuple[str, ...]  # PCR 4: Authenticode digests of its EFI programs, in the order of their start
    pcr11: Mapping[str, str]  # phase of the boot -> value of PCR 11
    loaders: tuple[str, ...] = ()  # PCR 4: of programs that may start first and load it, as iPXE loads the installer


@dataclass(frozen=True, slots=True)
class SecureBootKeys:
    """Digests of the contents of the variables that rule Secure Boot (PCR 7), each with the ones that are allowed."""

    pk: tuple[str, ...]
    kek: tuple[str, ...]
    db: tuple[str, ...]
    dbx: tuple[str, ...]
    authorities: tuple[str, ...] = ()  # of what verified a program, where that is not in db: the variables of shim


@dataclass(frozen=True, slots=True)
class FirmwareReference:
    """The measurements of firmware of these versions, as they were learned from one machine and reviewed."""

    versions: Mapping[str, str]  # firmware component -> version; a component that is not here does not count
    pcrs: Mapping[str, str]  # number of the PCR -> value
    applications: tuple[str, ...] = ()  # PCR 4: EFI programs that the firmware itself starts

    def fits(self, versions: Mapping[str, str]) -> bool:
        """Return whether the reference is for firmware of these versions."""
        return all(versions.get(component) == version for component, version in self.versions.items())


@dataclass(frozen=True, slots=True)
class ComponentReference:
    """The measurements of components whose firmware has these versions, learned from one machine and reviewed."""

    versions: Mapping[str, str]  # firmware component -> version; a component that is not here does not count
    values: Mapping[str, str]  # index of the measurement -> digest, or bits, in hexadecimal

    def fits(self, versions: Mapping[str, str]) -> bool:
        """Return whether the reference is for firmware of these versions."""
        return all(versions.get(component) == version for component, version in self.versions.items())


@dataclass(frozen=True, slots=True)
class ComponentMeasurements:
    """Components of one kind, each of which must sign what it measured. `authorities`: PEM of their makers' CAs.

    Without references a component must sign, and what it measured is not judged.
    """

    ids: tuple[str, ...]  # in the BMC's ComponentIntegrity
    authorities: str
    references: tuple[ComponentReference, ...] = ()


@dataclass(frozen=True, slots=True)
class PlatformMeasurements:
    """The measurements of a model of machine. `endorsement_authorities`: PEM of the CAs of its TPMs' makers.

    `secure_boot`: None where components alone are measured.
    """

    secure_boot: SecureBootKeys | None
    firmware: tuple[FirmwareReference, ...] = ()
    endorsement_authorities: str | None = None
    components: tuple[ComponentMeasurements, ...] = ()


@dataclass(frozen=True, slots=True)
class SignedMeasurements:
    """A component's answer as its BMC handed it on: nothing of it is verified yet."""

    signed: str  # base64: what was asked and answered, and the signature
    hash: str  # HashingAlgorithm
    certificates: str  # PEM


@dataclass(frozen=True, slots=True)
class Attestation:
    """A proof that was judged good, by quote or by the signatures of components, and what it was judged by."""

    reference: PublicText  # digest of the declared measurements
    at: datetime
    phase: PublicText  # whose PCR 11 it had; "" where no quote was asked for
    boot_id: Unpublished[FreeText] = ""  # the boot that it was of; "" only where no host's is told either
