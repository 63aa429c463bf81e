"""The proof that the spec asks of a node: of its boot, by the installer and by its image, and of its components."""

from __future__ import annotations

from collections.abc import Mapping
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


def must_prove(profile: Profile) -> bool:
    """Return whether nodes with this profile must prove anything after each boot: it, or what their components run."""
    return is_measured(profile) or bool(profile.measurements and profile.measurements.components)


def reference_of(profile: Profile) -> str:
    """Return a digest of what a node is judged by after a boot; "" if nothing. Under another it is judged anew.

    References for other firmware than the declared don't count: one that is added for the next wave changes nothing.
    """
    image, platform = profile.image, profile.measurements
    declared = {item.component: item.version for item in profile.firmware}
    judged_by: list[object] = []
    if image is not None and image.measurements is not None:
        judged_by.append(asdict(image.measurements))
        if platform is not None and platform.secure_boot is not None:
            firmware = [asdict(reference) for reference in platform.firmware if reference.fits(declared)]
            judged_by += [asdict(platform.secure_boot), platform.endorsement_authorities, firmware]
    for group in platform.components if platform is not None else ():
        references = [asdict(reference) for reference in group.references if reference.fits(declared)]
        judged_by.append({"ids": group.ids, "authorities": group.authorities, "references": references})
    return digest_of(judged_by) if judged_by else ""


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
    if profile.measurements is None or profile.measurements.secure_boot is None:
        return "no measurements are declared for its hardware"
    if not profile.measurements.firmware:
        return Expected(profile.image.measurements, profile.measurements)  # no reference asks for versions
    versions = versions_of(desired, observed)
    if isinstance(versions, str):
        return versions
    return Expected(profile.image.measurements, profile.measurements, versions)


def versions_of(desired: Desired, observed: Observed) -> Mapping[str, str] | str:
    """Return the versions of the firmware components that a reference may name, or why they are not known."""
    if not isinstance(observed.inventory, Answered) or observed.inventory.value.firmware is None:
        return "the BMC does not say which firmware the node has"
    told = observed.inventory.value.firmware
    rows = [item for item in desired.profile.firmware if item.inventory_id in told]
    found = {item.component: told[item.inventory_id].version for item in rows}
    return {component: version for component, version in found.items() if version is not None}


def expected_of_installer(desired: Desired, installer: InstallerPolicy | None) -> Expected | str:
    """Return what the installer must prove that runs on the node, or why that is not known.

    Its firmware is that of any declared reference: an installation may come between an update and its reading.
    """
    if installer is None or installer.measurements is None:
        return "no measurements are declared for the installer"
    if desired.profile.measurements is None or desired.profile.measurements.secure_boot is None:
        return "no measurements are declared for its hardware"
    return Expected(installer.measurements, desired.profile.measurements)
