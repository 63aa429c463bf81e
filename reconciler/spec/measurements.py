"""The declared measurements of a boot, from the spec's form to that of the resolved node."""

from __future__ import annotations

from reconciler.model.measurements import (
    BootMeasurements,
    ComponentMeasurements,
    ComponentReference,
    FirmwareReference,
    PlatformMeasurements,
    SecureBootKeys,
)
from reconciler.spec.kinds import measurements as kinds

_PCRS = {"0": "pcr0", "2": "pcr2", "3": "pcr3", "6": "pcr6"}


def boot_measurements(spec: kinds.BootMeasurements | None) -> BootMeasurements | None:
    """Return the measurements of a boot: None where the spec declares none."""
    if spec is None:
        return None
    loaders = spec.loaders if isinstance(spec, kinds.InstallerMeasurements) else ()
    return BootMeasurements(spec.applications, dict(sorted(spec.pcr11.items())), loaders)


def platform_measurements(spec: kinds.PlatformMeasurements | None) -> PlatformMeasurements | None:
    if spec is None:
        return None
    keys = spec.secure_boot
    return PlatformMeasurements(
        secure_boot=None if keys is None else SecureBootKeys(keys.pk, keys.kek, keys.db, keys.dbx, keys.authorities),
        firmware=tuple(_reference(reference) for reference in spec.firmware),
        endorsement_authorities=spec.endorsement_authorities,
        components=tuple(_component(group) for group in spec.components),
    )


def _component(spec: kinds.ComponentMeasurements) -> ComponentMeasurements:
    references = (
        ComponentReference(dict(sorted(one.versions.items())), dict(sorted(one.values.items())))
        for one in spec.references
    )
    return ComponentMeasurements(spec.ids, spec.authorities, tuple(references))


def _reference(spec: kinds.FirmwareReference) -> FirmwareReference:
    given = {pcr: getattr(spec, name) for pcr, name in _PCRS.items()}
    values = {pcr: value for pcr, value in given.items() if value is not None}
    return FirmwareReference(dict(sorted(spec.versions.items())), values, spec.applications)
