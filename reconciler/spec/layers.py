"""Merge settings in layers, each of which maps value paths to values and their positions.

A later layer overrides an earlier one, path by path.

The order is: the chosen profiles (HardwareProfile, Persona, GoldenImage) < Fleet.defaults < pool < node entry. A value
of None removes the path: it becomes unmanaged (conventions Y5). The choice of profiles is itself a setting, resolved
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.model.desired import DesiredFirmware
from reconciler.model.errors import Position
from reconciler.model.units import parse_duration, parse_size
from reconciler.model.values import Taint
from reconciler.spec.kinds.hardware_profile import FirmwareComponent, HardwareProfileSpec
from reconciler.spec.kinds.node_pool import NodeEntry
from reconciler.spec.kinds.persona import PersonaSpec
from reconciler.spec.kinds.settings import FirmwareOverride, HostSettings, NodeSettings, SharedSettings
from reconciler.spec.parse import DeclaredResource
from reconciler.strict_yaml.parse import Steps


@dataclass(frozen=True, slots=True)
class Setting:
    value: Any
    at: Position


Layer = Mapping[str, Setting]
CHOICES = ("hardware", "persona", "remediation")  # by name; the image has a version too


def merge(layers: Iterable[Layer]) -> dict[str, Setting]:
    merged: dict[str, Setting] = {}
    for layer in layers:
        for path, setting in layer.items():
            if setting.value is None:
                merged.pop(path, None)
            elif isinstance(setting.value, FirmwareOverride):
                merged[path] = _override(merged[path], setting)
            else:
                merged[path] = setting
    return merged


def below(layer: Layer, prefix: str) -> dict[str, Any]:
    """Return the values whose path starts with `prefix`, by the rest of the path, sorted."""
    return {path[len(prefix) :]: layer[path].value for path in sorted(layer) if path.startswith(prefix)}


def choices_of(resource: DeclaredResource[Any], settings: NodeSettings, steps: Steps) -> Layer:
    """Return the profiles and the image that the settings at `steps` choose. An explicit null chooses none."""
    found: dict[str, Setting] = {}
    for name in (*CHOICES, "image"):
        if name not in settings.model_fields_set:
            continue
        chosen, at = getattr(settings, name), resource.at(*steps, name)
        if name == "image":
            for part in ("name", "version"):
                value = None if chosen is None else getattr(chosen, part)
                found[f"image.{part}"] = Setting(value, resource.at(*steps, "image", part))
        else:
            found[name] = Setting(chosen, at)
    return found


def values_of(resource: DeclaredResource[Any], settings: NodeSettings, steps: Steps) -> Layer:
    """Return the values that the settings at `steps` lay over the profiles."""
    found: dict[str, Setting] = {}
    for index, override in enumerate(settings.firmware):
        at = resource.at(*steps, "firmware", index, "version")
        found[f"firmware.{override.component}"] = Setting(override, at)
    found |= _keyed(resource, "bios", settings.bios.attributes, (*steps, "bios", "attributes"))
    found |= _keyed(resource, "cluster.labels", settings.labels, (*steps, "labels"))
    if isinstance(settings, SharedSettings):
        found |= _host(resource, settings.host, (*steps, "host"))
    elif isinstance(settings, NodeEntry):
        found |= _keyed(resource, "host.sysctls", settings.sysctls, (*steps, "sysctls"))
        found |= _keyed(resource, "host.services", settings.services, (*steps, "services"))
    return found


def hardware_layer(profile: DeclaredResource[HardwareProfileSpec]) -> Layer:
    spec = profile.spec
    found: dict[str, Setting] = {}
    for part, model in (("match", spec.match), ("inventory", spec.inventory)):
        for name, value in model:
            field = "memory_bytes" if name == "memory" else name
            alias = type(model).model_fields[name].alias or name
            if value is not None:
                number = parse_size(value) if name == "memory" else value
                found[f"hardware.{field}"] = Setting(number, profile.at(part, alias))
    for index, item in enumerate(spec.firmware):
        found[f"firmware.{item.component}"] = Setting(_firmware(item), profile.at("firmware", index, "version"))
    found |= _keyed(profile, "bios", spec.bios.attributes, ("bios", "attributes"))
    if spec.secure_boot is not None:
        found["boot.secure_boot"] = Setting(spec.secure_boot, profile.at("secureBoot"))
    if spec.boot_order is not None:
        found["boot.order"] = Setting(spec.boot_order, profile.at("bootOrder"))
    return found


def persona_layer(persona: DeclaredResource[PersonaSpec]) -> Layer:
    spec = persona.spec
    found = {**_keyed(persona, "cluster.labels", spec.labels, ("labels",)), **_host(persona, spec.host, ("host",))}
    for index, taint in enumerate(spec.taints):
        value = Taint(taint.key, taint.value, taint.effect.value)
        found[f"cluster.taints.{taint.key}"] = Setting(value, persona.at("taints", index))
    found |= _keyed(persona, "cluster.allocatable", spec.allocatable, ("allocatable",))
    if spec.gpu.mig is not None:
        found["gpu.mig"] = Setting(dict(spec.gpu.mig), persona.at("gpu", "mig"))
    if spec.acceptance is not None:
        found["gate.certificate"] = Setting(spec.acceptance, persona.at("acceptance"))
    return found


def _host(resource: DeclaredResource[Any], host: HostSettings, steps: Steps) -> dict[str, Setting]:
    found = _keyed(resource, "host.sysctls", host.sysctls, (*steps, "sysctls"))
    found |= _keyed(resource, "host.services", host.services, (*steps, "services"))
    if "hostname" in host.model_fields_set:
        found["host.hostname"] = Setting(host.hostname, resource.at(*steps, "hostname"))
    return found


def _keyed(resource: DeclaredResource[Any], prefix: str, values: Mapping[str, Any], steps: Steps) -> dict[str, Setting]:
    return {f"{prefix}.{key}": Setting(value, resource.at(*steps, key)) for key, value in values.items()}


def _firmware(item: FirmwareComponent) -> DesiredFirmware:
    return DesiredFirmware(
        component=item.component,
        inventory_id=item.inventory_id,
        version=item.version,
        policy=item.policy.value,
        activation=item.activation,
        stage=item.stage,
        settle_s=parse_duration(item.settle),
        url=item.url,
        sha256=item.sha256,
        minutes=item.minutes,
        verified_by=item.verified_by,
    )


def _override(setting: Setting, override: Setting) -> Setting:
    given: FirmwareOverride = override.value
    values: dict[str, Any] = {
        name: str(value)
        for name, value in given
        if name != "component" and name in given.model_fields_set and value is not None
    }
    return Setting(replace(setting.value, **values), override.at if "version" in values else setting.at)
