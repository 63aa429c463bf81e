"""The proof of its boot that the spec asks of a node: of the installer that runs on it, and of its image."""

from __future__ import annotations

from dataclasses import asdict

from reconciler.gate.attestation.exchange import Expected
from reconciler.model.access import InstallerPolicy
from reconciler.model.desired import Desired, Profile
from reconciler.model.inputs import digest_of
from reconciler.model.observed import Answered, Observed
from reconciler.model.records import NodeRecord


def is_measured(profile: Profile) -> bool:
    """Return whether nodes with this profile must prove what they booted."""
    return profile.image is not None and profile.image.measurements is not None


def reference_of(profile: Profile) -> str:
    """Return a digest of what a boot is judged by; "" where it is not measured. A boot is judged anew under another.

    References for other firmware than the declared don't count: one that is added for the next wave changes nothing.
    """
    image, platform = profile.image, profile.measurements
    if image is None or image.measurements is None:
        return ""
    if platform is None:
        return digest_of([asdict(image.measurements)])
    declared = {item.component: item.version for item in profile.firmware}
    firmware = [asdict(reference) for reference in platform.firmware if reference.fits(declared)]
    keys = asdict(platform.secure_boot)
    return digest_of([asdict(image.measurements), keys, platform.endorsement_authorities, firmware])


def basis_of(profile: Profile, record: NodeRecord) -> str:
    """Return a digest of what a boot is judged by, and of the TPM that has to prove it; "" where it is not measured.

    Under another one, a boot that was refuted may be asked again.
    """
    reference = reference_of(profile)
    return digest_of([reference, record.endorsement]) if reference else ""


def expected_of_host(desired: Desired, observed: Observed) -> Expected | str:
    """Return what the booted image must prove, or why that is not known."""
    profile = desired.profile
    if profile.image is None or profile.image.measurements is None:
        return "no measurements are declared for its image"
    if profile.measurements is None:
        return "no measurements are declared for its hardware"
    if not profile.measurements.firmware:
        return Expected(profile.image.measurements, profile.measurements)  # no reference asks for versions
    if not isinstance(observed.inventory, Answered) or observed.inventory.value.firmware is None:
        return "the BMC does not say which firmware the node has"
    told = observed.inventory.value.firmware
    found = {item.component: told[item.inventory_id].version for item in profile.firmware if item.inventory_id in told}
    versions = {component: version for component, version in found.items() if version is not None}
    return Expected(profile.image.measurements, profile.measurements, versions)


def expected_of_installer(desired: Desired, installer: InstallerPolicy | None) -> Expected | str:
    """Return what the installer must prove that runs on the node, or why that is not known.

    Its firmware is that of any declared reference: an installation may come between an update and its reading.
    """
    if installer is None or installer.measurements is None:
        return "no measurements are declared for the installer"
    if desired.profile.measurements is None:
        return "no measurements are declared for its hardware"
    return Expected(installer.measurements, desired.profile.measurements)
