"""The settings of Fleet.defaults, of a NodePool and of a node entry, each of which overrides the one before.

They choose profiles and override single values of them. `null` removes an inherited value: it becomes unmanaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from reconciler.spec.kinds.base import Attribute, LabelKey, LabelValue, Sha256, Size, WebUrl
from reconciler.strict_yaml.models import Matching, Model, Name, Text


class ServiceState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"


class FirmwarePolicy(StrEnum):
    EXACT = "exact"
    MIN = "min"


SysctlName = Annotated[
    str, Matching(r"(?=.{1,255}$)[a-z0-9_]+([./][A-Za-z0-9_*-]+)+", "a sysctl name like vm.swappiness")
]
# The kernel reads at most a page, and sysctl.d a line. `sysctl -a` prints tabs between numbers.
SysctlValue = Annotated[
    str,
    Matching(
        r"[!-~]([ \t!-~]{0,4093}[!-~])?", "a value of a sysctl: one line of up to 4095 ASCII characters", lines=True
    ),
]
# systemctl takes a name that begins with '-' for an option.
ServiceName = Annotated[str, Matching(r"[A-Za-z0-9@_.:\\][A-Za-z0-9@_.:\\-]{0,254}", "a name of a systemd unit")]
AttributeName = Annotated[str, Matching(r"[^\s]{1,256}", "a name of a BIOS attribute")]


class ImageRef(Model):
    """A golden image and the version of it that the node runs."""

    name: Name = Field(description="Name of a GoldenImage.")
    version: Text = Field(description="One of its versions.")


class Bios(Model):
    """BIOS settings."""

    attributes: Mapping[AttributeName, Attribute] = Field(
        default={}, description="Redfish BIOS attributes by name; null leaves one unmanaged."
    )


class HostSettings(Model):
    """Configuration of the running operating system."""

    hostname: Literal["fromName"] | None = Field(
        default=None, description="fromName: the node's name in the spec. Absent: unmanaged."
    )
    sysctls: Mapping[SysctlName, SysctlValue | None] = Field(
        default={}, description="Kernel parameters by name, values as text; null leaves one unmanaged."
    )
    services: Mapping[ServiceName, ServiceState | None] = Field(
        default={}, description="systemd units by name: running (and enabled) or stopped (and disabled)."
    )


class FirmwareOverride(Model):
    """Values laid over one firmware component of the HardwareProfile."""

    component: Name = Field(description="Component of the HardwareProfile.")
    version: Text | None = Field(default=None, description="Desired version.")
    policy: FirmwarePolicy | None = Field(default=None, description="exact, or min: that version or a newer one.")
    url: WebUrl | None = Field(default=None, description="Where the BMC fetches the firmware image.")
    sha256: Sha256 | None = Field(default=None, description="Digest of the firmware image.")


class RootDiskRule(Model):
    """The drive that an image may be written to. Exactly one drive must match all given keys."""

    serial: Text | None = Field(default=None, description="Serial number of the drive.")
    wwn: Text | None = Field(default=None, description="World-wide name (EUI or NAA) of the drive.")
    model: Text | None = Field(default=None, description="Model name of the drive.")
    min_size: Size | None = Field(default=None, description="Smallest acceptable capacity.")
    max_size: Size | None = Field(default=None, description="Largest acceptable capacity.")

    @model_validator(mode="after")
    def _says_something(self) -> RootDiskRule:
        if not self.model_fields_set:
            raise ValueError("is empty; give serial, wwn, model, minSize or maxSize")
        return self


class NodeSettings(Model):
    """The settings that a node entry may override, too."""

    image: ImageRef | None = Field(default=None, description="Golden image to run. Absent: the image is unmanaged.")
    hardware: Name | None = Field(default=None, description="Name of a HardwareProfile.")
    persona: Name | None = Field(default=None, description="Name of a Persona.")
    remediation: Name | None = Field(
        default=None, description="Name of a RemediationPolicy. Absent: an unhealthy node is isolated and reported."
    )
    firmware: tuple[FirmwareOverride, ...] = Field(
        default=(), description="Values laid over firmware components of the HardwareProfile."
    )
    bios: Bios = Field(default=Bios(), description="BIOS attributes laid over those of the HardwareProfile.")
    labels: Mapping[LabelKey, LabelValue | None] = Field(
        default={}, description="Kubernetes labels laid over those of the Persona."
    )


class SharedSettings(NodeSettings):
    """The settings of many nodes. A node entry has `host` for its address, and sysctls and services as own keys."""

    host: HostSettings = Field(default=HostSettings(), description="Host configuration laid over that of the Persona.")
