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


def entries(registry: Document) -> dict[str, Document]:
    """Return the entries of an attribute registry by attribute."""
    listed = objects(member(registry, "RegistryEntries"), "Attributes")
    return {name: entry for entry in listed if (name := text(entry, "AttributeName")) is not None}


def problems(wanted: Attributes, known: Mapping[str, Document]) -> Iterator[str]:
    """Yield why values can't be set, by what the registry says about each attribute (pitfall G1)."""
    for name, value in wanted.items():
        found = _problem(value, known[name]) if name in known else "is not an attribute of this BIOS"
        if found:
            yield f"{name} {found}"


def _problem(value: AttributeValue, entry: Document) -> str:
    if boolean(entry, "ReadOnly") or boolean(entry, "Immutable"):
        return "is read-only"
    match text(entry, "Type"):
        case "Enumeration":
            allowed = [word for item in objects(entry, "Value") if isinstance(word := item.get("ValueName"), str)]
            if not allowed or value in allowed:
                return ""
            if str(value) in allowed:
                return "must be given as text, in quotes"
            return f"can't be {value!r}: {quote(', '.join(allowed))}"
        case "Integer":
            if isinstance(value, bool) or not isinstance(value, int):
                return f"can't be {value!r}: a whole number"
            return _within(value, number(entry, "LowerBound"), number(entry, "UpperBound"), "")
        case "Boolean":
            return "" if isinstance(value, bool) else f"can't be {value!r}: true or false"
        case "String":
            if not isinstance(value, str):
                return f"can't be {value!r}: a text"
            return _within(len(value), number(entry, "MinLength"), number(entry, "MaxLength"), "its length ")
        case _:
            return ""


def _within(value: int, least: float | None, most: float | None, what: str) -> str:
    if least is not None and value < least:
        return f"can't be that: {what}{value} is below {least:g}"
    if most is not None and value > most:
        return f"can't be that: {what}{value} is above {most:g}"
    return ""
