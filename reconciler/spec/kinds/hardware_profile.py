"""HardwareProfile: the parts of a model of machine, and its firmware and BIOS settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from reconciler.model.gate_arguments import RATE
from reconciler.model.vocab import Activation, BootWay, VerifiedBy
from reconciler.spec.kinds.base import Duration, Resource, Sha256, Size, WebUrl
from reconciler.spec.kinds.measurements import PlatformMeasurements
from reconciler.spec.kinds.settings import Bios, FirmwarePolicy
from reconciler.strict_yaml.models import Matching, Model, Name, Text

RateName = Annotated[str, Matching(RATE.pattern, "a rate; name it like lineRate")]
Rate = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=100_000)]


class Match(Model):
    """The machines that this profile describes, as their BMCs name them."""

    manufacturer: Text | None = Field(default=None, description="Manufacturer of the system.")
    model: Text | None = Field(default=None, description="Model of the system.")


class Inventory(Model):
    """The parts of such a machine. The gate demands evidence for each of them."""

    gpus: Count | None = Field(default=None, description="Number of GPUs.")
    gpu_model: Text | None = Field(default=None, description="Product name of each GPU, as nvidia-smi prints it.")
    nvlinks_per_gpu: Count | None = Field(default=None, description="Active NVLinks of each GPU.")
    rdma_ports: Count | None = Field(default=None, description="RDMA ports that are up.")
    rdma_rate_gbps: Count | None = Field(
        default=None,
        description="Rate of each RDMA port in Gb/s; where a node has ports of two rates, that of the slowest.",
    )
    nics: Count | None = Field(default=None, description="Network interfaces that the BMC lists.")
    drives: Count | None = Field(default=None, description="Number of drives.")
    dimms: Count | None = Field(default=None, description="Number of memory modules.")
    memory: Size | None = Field(default=None, description="Total memory.")
    processors: Count | None = Field(default=None, description="Processor sockets in use.")


class FirmwareComponent(Model):
    """One firmware component."""

    component: Name = Field(description="Name of the component, unique within the profile.")
    inventory_id: Text = Field(description="Its Id in the BMC's FirmwareInventory.")
    version: Text = Field(description="Desired version.")
    policy: FirmwarePolicy = Field(
        default=FirmwarePolicy.EXACT, description="exact, or min: that version or a newer one."
    )
    stage: int = Field(default=1, ge=1, le=99, description="Order of updates: lower stages first.")
    activation: Activation = Field(description="What makes an update take effect.")
    settle: Duration = Field(default="0s", description="How long to wait after activation.")
    minutes: float = Field(default=10.0, gt=0, le=600, description="How long an update takes.")
    url: WebUrl | None = Field(
        default=None,
        description="Where it is fetched, by the reconciler and by the BMC. Absent: it is compared, but never updated.",
    )
    sha256: Sha256 | None = Field(default=None, description="Digest of the file at `url`.")
    verified_by: VerifiedBy = Field(
        default=VerifiedBy.RECONCILER,
        description="reconciler: it fetches the file, and flashes it only with this digest. bmc: nobody compares the "
        "digest, for a file server that only BMCs reach; the vendor's signature in the file is all that is checked.",
    )

    @model_validator(mode="after")
    def _has_digest(self) -> FirmwareComponent:
        if self.url is not None and self.sha256 is None:
            raise ValueError("url needs sha256: firmware without a digest is not installed")  # pitfall F11
        return self


class HardwareProfileSpec(Model):
    """The parts of a machine, and its firmware and BIOS settings."""

    match: Match = Field(default=Match(), description="Which machines this profile describes.")
    inventory: Inventory = Field(default=Inventory(), description="Parts of such a machine.")
    firmware: tuple[FirmwareComponent, ...] = Field(default=(), description="Firmware components to manage.")
    bios: Bios = Field(default=Bios(), description="BIOS settings.")
    rates: Mapping[RateName, Rate] = Field(
        default={},
        description="Rates of such a machine by name, like lineRate: 400, in the unit of the metrics that are compared "
        "with shares of them.",
    )
    secure_boot: bool | None = Field(default=None, description="Whether UEFI Secure Boot must be on.")
    boot_order: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="How the persistent boot order begins: kinds of devices, as Redfish names them (Hdd, Pxe, "
        "UefiHttp, Cd, Usb, UefiShell), which stand for all entries of that kind, or an entry's display name, "
        "reference or UEFI device path.",
    )
    boot_ways: tuple[BootWay, ...] | None = Field(
        default=None,
        min_length=1,
        description="Ways for an installer to boot; the first that the BMC can do is taken. Absent: virtual_media, "
        "http, and pxe where the Fleet's installer offers it.",
    )
    measurements: PlatformMeasurements | None = Field(
        default=None, description="What such a machine measures. Images that declare measurements need it."
    )

    @field_validator("boot_ways")
    @classmethod
    def _each_once(cls, ways: tuple[BootWay, ...] | None) -> tuple[BootWay, ...] | None:
        if ways is not None and len(set(ways)) < len(ways):
            raise ValueError("a way is listed twice")
        return ways

    @field_validator("firmware")
    @classmethod
    def _unique(cls, firmware: tuple[FirmwareComponent, ...]) -> tuple[FirmwareComponent, ...]:
        for label, names in (
            ("component", [item.component for item in firmware]),
            ("inventoryId", [item.inventory_id for item in firmware]),
        ):
            for at, name in enumerate(names):
                if name in names[:at]:
                    raise ValueError(f"{label} {name!r} is listed twice")
        return firmware


class HardwareProfile(Resource):
    """A model of machine."""

    kind: Literal["HardwareProfile"] = Field(description="HardwareProfile.")
    spec: HardwareProfileSpec = Field(description="Parts of the machine, and its firmware and BIOS settings.")
