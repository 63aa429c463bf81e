"""Normalise values, so that two that mean the same are equal. Reports show the originals."""

from __future__ import annotations

import re

from reconciler.model.observed import AttributeValue

# Vendors, and generations of one vendor, spell the same BIOS value in many ways (pitfall G5).
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
    """Normalise case, outer blanks, vendor aliases, and numbers as text of a BIOS attribute."""
    text = str(value).strip().casefold()
    return _ALIASES.get(text, text)


def text(value: str) -> str:
    """Normalise case and outer blanks of a name or an identity."""
    return value.strip().casefold()


def same(one: str, other: str) -> bool:
    """Return whether two names or identities are the same."""
    return one == other or text(one) == text(other)


def sysctl(value: str) -> str:
    """Normalise the blanks of a sysctl value: the kernel separates fields by tabs, people by spaces."""
    return " ".join(value.split())


def version(value: str) -> str:
    """Normalise case, outer blanks and a leading "v" of a firmware version. Zero padding stays (pitfall F12)."""
    return value.strip().casefold().removeprefix("v")


def version_key(value: str) -> tuple[tuple[int, int | str], ...]:
    """Return a key that orders versions field by field, numbers as numbers: 1.10 is newer than 1.9."""
    fields = re.split(r"[.\-_+ ]", version(value))
    return tuple((1, int(field)) if _NUMBER.fullmatch(field) else (0, field) for field in fields)
