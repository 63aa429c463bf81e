"""Product data that nvidia-smi prints: constants of the board and its driver, not state of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class MigShape:
    """A MIG profile: the resources of one instance, and the id of the first GPU instance of this size."""

    multiprocessors: int
    slices: int
    memory_mib: int
    bar1_mib: int
    first_instance: int


@dataclass(frozen=True, slots=True)
class Sku:
    architecture: str
    device_id: str
    subsystem_id: str
    part_number: str
    gpu_part_number: str
    inforom: str
    memory_mib: int
    reserved_mib: int
    bar1_mib: int
    power_limit_w: int
    pcie_gen: int
    max_clock_mhz: int
    memory_clock_mhz: int
    link_gbs: str  # per NVLink, as `nvidia-smi nvlink -s` prints it
    multiprocessors: int  # of a MIG slice
    mig: Mapping[str, MigShape] = field(default_factory=dict)


_H100 = Sku(
    architecture="Hopper",
    device_id="233010DE",
    subsystem_id="16C110DE",
    part_number="692-2G520-0200-000",
    gpu_part_number="2330-885-A1",
    inforom="G520.0200.00.05",
    memory_mib=81559,
    reserved_mib=555,
    bar1_mib=131072,
    power_limit_w=700,
    pcie_gen=5,
    max_clock_mhz=1980,
    memory_clock_mhz=2619,
    link_gbs="26.562",
    multiprocessors=16,
    mig={
        "7g.80gb": MigShape(132, 7, 80896, 131072, 0),
        "4g.40gb": MigShape(64, 4, 40448, 24739, 1),
        "3g.40gb": MigShape(60, 3, 40448, 24739, 1),
        "2g.20gb": MigShape(32, 2, 20096, 12369, 3),
        "1g.20gb": MigShape(26, 1, 20096, 12369, 15),
        "1g.10gb": MigShape(16, 1, 9984, 6184, 7),
    },
)
_H200 = Sku(
    architecture="Hopper",
    device_id="233510DE",
    subsystem_id="18BE10DE",
    part_number="692-2G520-0280-001",
    gpu_part_number="2335-885-A1",
    inforom="G520.0280.00.02",
    memory_mib=143771,
    reserved_mib=624,
    bar1_mib=262144,
    power_limit_w=700,
    pcie_gen=5,
    max_clock_mhz=1980,
    memory_clock_mhz=3201,
    link_gbs="26.562",
    multiprocessors=16,
)
_A100 = Sku(
    architecture="Ampere",
    device_id="20B210DE",
    subsystem_id="146310DE",
    part_number="692-2G506-0212-002",
    gpu_part_number="20B2-884-A1",
    inforom="G506.0212.00.01",
    memory_mib=81920,
    reserved_mib=578,
    bar1_mib=131072,
    power_limit_w=400,
    pcie_gen=4,
    max_clock_mhz=1410,
    memory_clock_mhz=1593,
    link_gbs="25",
    multiprocessors=14,
    mig={
        "7g.80gb": MigShape(98, 7, 80896, 131072, 0),
        "4g.40gb": MigShape(56, 4, 40192, 65535, 1),
        "3g.40gb": MigShape(42, 3, 40192, 65535, 1),
        "2g.20gb": MigShape(28, 2, 19968, 32767, 3),
        "1g.10gb": MigShape(14, 1, 9728, 16383, 7),
    },
)
_B200 = Sku(
    architecture="Blackwell",
    device_id="290110DE",
    subsystem_id="199910DE",
    part_number="692-2G525-0220-002",
    gpu_part_number="2901-886-A1",
    inforom="G525.0220.00.03",
    memory_mib=183359,
    reserved_mib=679,
    bar1_mib=262144,
    power_limit_w=1000,
    pcie_gen=5,
    max_clock_mhz=1965,
    memory_clock_mhz=3996,
    link_gbs="53.125",
    multiprocessors=18,
)

_A100_40 = replace(
    _A100, device_id="20B010DE", subsystem_id="134F10DE", part_number="692-2G506-0200-003", memory_mib=40960, mig={}
)

_BY_NAME = {"A100-SXM4-40GB": _A100_40, "A100": _A100, "H100": _H100, "H200": _H200, "B200": _B200}


def sku(product_name: str) -> Sku:
    """Return a product's constants; those of an H100 if unknown. Name, serials and counts come from the machine."""
    return next((found for word, found in _BY_NAME.items() if word in product_name), _H100)


def mig_shape(product: Sku, profile: str) -> MigShape:
    """Return a profile's shape. One that is not in the table follows from its name, "<slices>g.<memory>gb"."""
    known = product.mig.get(profile)
    if known is not None:
        return known
    slices, memory = (int(number) for number in profile.split("+")[0].removesuffix("gb").split("g."))
    share = product.memory_mib * memory // round(product.memory_mib / 1024)
    return MigShape(
        product.multiprocessors * slices, slices, share, share // 2, {7: 0, 4: 1, 3: 1, 2: 3}.get(slices, 7)
    )
