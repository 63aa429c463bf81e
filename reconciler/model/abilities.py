"""Hold what a BMC says that it can write, which decides before a node is drained whether an action is possible.

Each ability is read by the same code that does the write, so that the two can't disagree. What was not read is unknown,
and an unknown rules no action out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final

from reconciler.model.privacy import FreeText, Identifier, Privacy, PublicText

URL: Final = "{url}"  # stands for the URL to boot from in `Abilities.http_attributes`
FETCHES: Final = "SimpleUpdate"  # the way to update firmware by which the BMC fetches the file itself
ONLY_SENT: Final = (
    "the BMC fetches no firmware: it has to be sent the file, which needs `verifiedBy: reconciler` for the component"
)


class Ability(StrEnum):
    """The kinds of request that a BMC may lack."""

    POWER = "power"  # off and on
    BMC_RESET = "bmc_reset"
    BIOS = "bios"
    SECURE_BOOT = "secure_boot"
    BOOT_ORDER = "boot_order"
    BOOT_ONCE = "boot_once"  # from a disc
    MEDIA = "media"  # a virtual disc
    HTTP_BOOT = "http_boot"  # once, from a URI that is given to it
    PXE_BOOT = "pxe_boot"  # once
    FIRMWARE = "firmware"
    MEASUREMENTS = "measurements"  # of components, which sign them


@dataclass(frozen=True, slots=True)
class BootOption:
    """An entry of the boot order. `kind` is Redfish's word for its device, as Hdd; "" if nothing tells it."""

    reference: Identifier  # Boot0003
    kind: PublicText = ""
    name: FreeText = ""  # DisplayName
    path: FreeText = ""  # UefiDevicePath
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class BiosLimit:
    """The limits that the attribute registry sets for one BIOS attribute. None, or no words: it sets no such limit."""

    kind: str = ""  # Enumeration | Integer | Boolean | String; "" = any
    read_only: bool = False
    allowed: tuple[str, ...] = ()
    least: float | None = None  # of a number, or of a text's length
    most: float | None = None

    def refuses(self, value: Any) -> str:
        """Return why a value can't be set, in words that follow the attribute's name; "" if it can be."""
        if self.read_only:
            return "is read-only"
        match self.kind:
            case "Enumeration":
                if not self.allowed or value in self.allowed:
                    return ""
                if str(value) in self.allowed:
                    return "must be given as text, in quotes"
                return f"can't be {value!r}: {', '.join(self.allowed)}"
            case "Integer":
                if isinstance(value, bool) or not isinstance(value, int):
                    return f"can't be {value!r}: a whole number"
                return self._outside(value, "")
            case "Boolean":
                return "" if isinstance(value, bool) else f"can't be {value!r}: true or false"
            case "String":
                if not isinstance(value, str):
                    return f"can't be {value!r}: a text"
                return self._outside(len(value), "its length ")
            case _:
                return ""

    def _outside(self, value: int, what: str) -> str:
        if self.least is not None and value < self.least:
            return f"can't be that: {what}{value} is below {self.least:g}"
        if self.most is not None and value > self.most:
            return f"can't be that: {what}{value} is above {self.most:g}"
        return ""


@dataclass(frozen=True, slots=True)
class Abilities:
    """The writes that a BMC can do, as far as they were read.

    `lacks`: by ability, why the BMC lacks it; "" = it has it, and an ability that is absent was not read. `bios`: the
    limits of BIOS attributes; {} = the BMC serves no registry of them. `http_attributes`: those that make it boot from
    a URI, with {url} in the URI's place; {} = it takes the URI as HttpBootUri.
    """

    lacks: Mapping[PublicText, FreeText] = field(default_factory=dict)
    bios: Annotated[Mapping[str, BiosLimit] | None, Privacy.BIOS] = None
    boot_targets: tuple[PublicText, ...] | None = None  # of a one-time boot
    reset_types: tuple[PublicText, ...] | None = None
    http_attributes: Mapping[PublicText, PublicText] = field(default_factory=dict)
    firmware_ways: tuple[PublicText, ...] | None = None  # SimpleUpdate | MultipartHttpPushUri | HttpPushUri

    def why_not(self, ability: Ability) -> str:
        """Return why the BMC lacks an ability; "" if it has it or nothing is known of it."""
        return self.lacks.get(ability.value, "")
