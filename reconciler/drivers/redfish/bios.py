"""BIOS attributes, pending ones, and their check against a registry. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.drivers.redfish.fields import (
    Document,
    Unknown,
    boolean,
    member,
    missing,
    number,
    objects,
    quote,
    text,
    texts,
)
from reconciler.model.abilities import BiosLimit
from reconciler.model.observed import AttributeValue

Attributes = Mapping[str, AttributeValue]


def attributes(bios: Document, *, strict: bool = False) -> dict[str, AttributeValue]:
    """Return the attributes of Bios. null, as of passwords, is left out.

    `strict`: raises Unknown for any other value that is no text, boolean or whole number.
    """
    found = bios.get("Attributes")
    if not isinstance(found, dict):
        raise Unknown(missing(bios, "Attributes"))
    values: dict[str, AttributeValue] = {}
    for name, value in found.items():
        if isinstance(value, str | bool | int):
            values[name] = value
        elif isinstance(value, float) and value.is_integer():
            values[name] = int(value)
        elif strict and value is not None:
            raise Unknown(f"attribute {quote(name)} is {quote(repr(value))}")
    return values


def staged(settings: Document) -> dict[str, AttributeValue]:
    """Return the attributes of a settings object. Supermicro's has none, not even the object, while nothing waits."""
    return attributes(settings, strict=True) if "Attributes" in settings else {}


def differing(staged: Attributes, current: Attributes) -> dict[str, AttributeValue]:
    """Return the staged values that differ: the settings object may list all attributes (HPE, Lenovo)."""
    for name in staged:
        if name not in current:
            raise Unknown(f"attribute {quote(name)} is listed as a setting but has no current value to compare with")
    return {name: value for name, value in staged.items() if not same(value, current[name])}


def same(one: AttributeValue, other: AttributeValue) -> bool:
    """Compare values, case and type aside: some firmware gives a number as text in one of the two places."""
    return one == other or str(one).casefold() == str(other).casefold()


def apply_times(bios: Document) -> tuple[str, ...]:
    return texts(member(bios, "@Redfish.Settings"), "SupportedApplyTimes")


def limits(registry: Document) -> dict[str, BiosLimit]:
    """Return what an attribute registry allows, by attribute."""
    listed = objects(member(registry, "RegistryEntries"), "Attributes")
    return {name: _limit(entry) for entry in listed if (name := text(entry, "AttributeName")) is not None}


def _limit(entry: Document) -> BiosLimit:
    kind = text(entry, "Type") or ""
    least, most = ("MinLength", "MaxLength") if kind == "String" else ("LowerBound", "UpperBound")
    return BiosLimit(
        kind=kind,
        read_only=bool(boolean(entry, "ReadOnly") or boolean(entry, "Immutable")),
        allowed=tuple(word for item in objects(entry, "Value") if isinstance(word := item.get("ValueName"), str)),
        least=number(entry, least),
        most=number(entry, most),
    )


def problems(wanted: Attributes, known: Mapping[str, BiosLimit]) -> Iterator[str]:
    """Yield why values can't be set, by what the registry says about each attribute (pitfall G1)."""
    for name, value in wanted.items():
        found = known[name].refuses(value) if name in known else "is not an attribute of this BIOS"
        if found:
            yield f"{name} {quote(found)}"
