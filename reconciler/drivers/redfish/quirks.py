"""The quirks of BMCs: what each behaviour means. quirks.yaml says which make has which, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, Field

from reconciler.diff.normalise import version_key
from reconciler.drivers.redfish.fields import Document, member, text
from reconciler.model.errors import ReconcilerError
from reconciler.model.printable import visible
from reconciler.model.units import parse_duration
from reconciler.model.vocab import BootPhase
from reconciler.strict_yaml.models import Matching, Model, Text
from reconciler.strict_yaml.read import InvalidFile, read_model

T = TypeVar("T")

_NO_WORDS: frozenset[str] = frozenset()
PACKAGED = Path(__file__).with_name("quirks.yaml")


class Operation(StrEnum):
    """The kinds of write that `patience` distinguishes."""

    BIOS = "bios"
    FIRMWARE = "firmware"
    MEDIA = "media"


class TaskEnd(StrEnum):
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Quirks:
    """The behaviours of one BMC. The defaults are those of the standard."""

    serial_property: str = "SerialNumber"  # the property with the serial that DMI shows
    pending_is_delta: bool = False  # Bios/Settings holds modified attributes only, and Bios shows them early
    restate_boot_mode: bool = False  # set the boot device together with its mode
    clear_pending: str = ""  # the OEM action of the settings object that drops what is pending
    firmware_id: re.Pattern[str] | None = None  # Id of a component that runs; group 1 outlives its updates
    firmware_version: re.Pattern[str] | None = None  # group 1 is what the vendor's download page says
    stuck_at: frozenset[str] = frozenset()  # a BootProgress that it also shows while the OS runs
    post_state: Mapping[str, BootPhase] = field(default_factory=dict)  # Oem.<vendor>.PostState instead of BootProgress
    task_states: Mapping[str, TaskEnd] = field(
        default_factory=dict
    )  # states that end a task or job; entries are merged
    task_grace: float = 0.0  # fleet seconds in which a task that was just started may not be known yet
    media_slot: str = ""  # Id of the preferred slot among those for discs
    http_boot: bool = True  # it takes the HttpBootUri that it shows
    http_attributes: Mapping[str, str] = field(
        default_factory=dict
    )  # BIOS attributes that make it boot from a URI, {url}, where it takes no HttpBootUri; entries are merged
    indicator_at_rest: str = "Off"  # the word of an IndicatorLED that shows nobody where the machine is
    conflict_wait: float = 0.0  # seconds after which to repeat a power order that was refused with 409
    patience: Mapping[Operation, float] = field(
        default_factory=dict
    )  # seconds for the answer to a write; entries are merged
    write_gap: float = 0.0  # seconds between two writes
    read_gap: float = 0.0  # seconds between any two requests


# --- the file ------------------------------------------------------------------------------------------------------


class QuirksError(ReconcilerError):
    """Raised for a table of quirks that can't be used; names every line that is wrong."""

    def lines(self) -> tuple[str, ...]:
        return tuple(map(visible, str(self).split("\n")))


def _seconds(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]
Pitfall = Annotated[str, Matching(r"[A-N][0-9]{1,2}", "the ID of a pitfall, like A12")]
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}
_COMPARISON = r"(?:<|<=|>=|>)[0-9][^\s<>=]*"
FirmwareRange = Annotated[str, Matching(rf"{_COMPARISON}(?: {_COMPARISON})*", "a range of versions, like '>=1.0 <2'")]


class Sourced(Model, Generic[T]):
    """A behaviour of a make, with its source."""

    value: T = Field(alias="is")
    pitfall: Pitfall
    source: Text
    because: Text


class Behaviours(Model):
    """The behaviours that an entry sets; see `Quirks`."""

    serial_property: Sourced[Text] | None = None
    pending_is_delta: Sourced[bool] | None = None
    restate_boot_mode: Sourced[bool] | None = None
    clear_pending: Sourced[Text] | None = None
    firmware_id: Sourced[re.Pattern[str]] | None = None
    firmware_version: Sourced[re.Pattern[str]] | None = None
    stuck_at: Sourced[frozenset[Text]] | None = None
    post_state: Sourced[Mapping[Text, BootPhase]] | None = None
    task_states: Sourced[Mapping[Text, TaskEnd]] | None = None
    task_grace: Sourced[Seconds] | None = None
    media_slot: Sourced[Text] | None = None
    http_boot: Sourced[bool] | None = None
    http_attributes: Sourced[Mapping[Text, Text]] | None = None
    indicator_at_rest: Sourced[Text] | None = None
    conflict_wait: Sourced[Seconds] | None = None
    patience: Sourced[Mapping[Operation, Seconds]] | None = None
    write_gap: Sourced[Seconds] | None = None
    read_gap: Sourced[Seconds] | None = None

    def given(self) -> dict[str, Sourced[Any]]:
        return {item.name: found for item in fields(Quirks) if (found := getattr(self, item.name)) is not None}


class Match(Model):
    vendors: tuple[Annotated[str, Matching(r"[a-z0-9]+", "a word in lower case")], ...] = ()
    model: re.Pattern[str] | None = None
    firmware: FirmwareRange | None = None


class Entry(Model):
    name: Text
    match: Match
    behaviours: Behaviours

    def fits(self, vendors: frozenset[str], model: str, firmware: Callable[[], str | None]) -> bool:
        """Say whether the entry is about this BMC. `firmware` costs a request, and is called last."""
        wanted = self.match
        if wanted.vendors and not vendors & set(wanted.vendors):
            return False
        if wanted.model is not None and not wanted.model.fullmatch(model):
            return False
        return wanted.firmware is None or _within(firmware(), wanted.firmware)


class QuirksFile(Model):
    quirks: tuple[Entry, ...]


def _within(version: str | None, wanted: str) -> bool:
    if version is None:
        return False
    for part in wanted.split():
        sign = part.rstrip(part.lstrip("<>="))
        if not _COMPARISONS[sign](version_key(version), version_key(part.removeprefix(sign))):
            return False
    return True


# --- the table -----------------------------------------------------------------------------------------------------


class Table:
    """The known quirks. `standard`: those of a BMC whose make is unknown."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.vendors = frozenset(word for entry in entries for word in entry.match.vendors)
        self._made: dict[tuple[int, ...], Quirks] = {}
        self.standard = self.of(frozenset(), "", lambda: None)

    def of(self, vendors: frozenset[str], model: str, firmware: Callable[[], str | None]) -> Quirks:
        fitting = tuple(n for n, entry in enumerate(self.entries) if entry.fits(vendors, model, firmware))
        if fitting not in self._made:
            self._made[fitting] = _merged([self.entries[n] for n in fitting])
        return self._made[fitting]


def _merged(entries: list[Entry]) -> Quirks:
    values: dict[str, Any] = {}
    for entry in entries:
        for name, given in entry.behaviours.given().items():
            before = values.get(name)
            values[name] = {**before, **given.value} if isinstance(before, dict) else given.value
    return Quirks(**values)


def load_table(path: Path = PACKAGED) -> Table:
    """Read a table. QuirksError when it is wrong."""
    try:
        return Table(read_model(QuirksFile, path).quirks)
    except InvalidFile as error:
        raise QuirksError(str(error)) from None


@cache
def packaged() -> Table:
    """Return the table of this version."""
    return load_table()


def quirks_of(
    system: Document,
    root: Document,
    *,
    table: Table | None = None,
    firmware: Callable[[], str | None] = lambda: None,
) -> Quirks | None:
    """Return the quirks by manufacturer, the root's Vendor or the Oem sections; None where nothing names the make.

    `firmware` returns the manager's version, None where that is unknown.
    """
    claims = [claim for claim in (text(system, "Manufacturer"), text(root, "Vendor")) if claim is not None]
    claims += [*member(system, "Oem"), *member(root, "Oem")]
    if not claims:
        return None
    known = table or packaged()
    words = next((found for claim in claims if (found := _words(claim)) & known.vendors), _NO_WORDS)
    return known.of(words, text(system, "Model") or "", firmware)


@lru_cache(maxsize=256)
def _words(claim: str) -> frozenset[str]:
    """Return each word in lower case, and all of them joined: "ASRock Rack" is also asrockrack."""
    words = re.split(r"[^a-z0-9]+", claim.casefold())
    return frozenset({*words, "".join(words)} - {""})
