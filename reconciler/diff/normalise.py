"""One form per kind of value. Two values that mean the same become equal; the reports show the originals."""

from __future__ import annotations

import re

from reconciler.model.observed import AttributeValue

# BIOS enums say the same in many ways, between vendors and between a vendor's own generations (pitfall G5).
_ALIASES = {
    "enable": "enabled",
    "on": "enabled",
    "true": "enabled",
    "yes": "enabled",
    "disable": "disabled",
    "off": "disabled",
    "false": "disabled",
    "no": "disabled",
}
_NUMBER = re.compile(r"\d+")


def attribute(value: AttributeValue) -> str:
    """A BIOS attribute: case, outer space, vendor aliases, and numbers that come as text."""
    text = str(value).strip().casefold()
    return _ALIASES.get(text, text)


def text(value: str) -> str:
    """Names and identities: case and outer space."""
    return value.strip().casefold()


def same(one: str, other: str) -> bool:
    """As names and identities."""
    return one == other or text(one) == text(other)


def sysctl(value: str) -> str:
    """The kernel separates the fields of one key by tabs, people by spaces."""
    return " ".join(value.split())


def version(value: str) -> str:
    """A firmware version without decoration; zero padding kept, because vendors order by it (pitfall F12)."""
    return value.strip().casefold().removeprefix("v")


def version_key(value: str) -> tuple[tuple[int, int | str], ...]:
    """Orders versions field by field, numbers as numbers: 1.10 is newer than 1.9."""
    fields = re.split(r"[.\-_+ ]", version(value))
    return tuple((1, int(field)) if _NUMBER.fullmatch(field) else (0, field) for field in fields)
