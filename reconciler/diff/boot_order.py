"""Find the entries that a spec's boot order names. The comparison, the plan and the write all use this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from reconciler.diff import normalise
from reconciler.model.abilities import BootOption
from reconciler.model.observed import HIDDEN, RedfishInventory

Options = tuple[BootOption, ...]


class NoSuchEntry(Exception):
    """Raised for a word that names no entry. `hidden`: an entry that was not published may be the one."""

    def __init__(self, detail: str, hidden: bool) -> None:
        super().__init__(detail)
        self.hidden = hidden


def options_of(inventory: RedfishInventory) -> Options | None:
    """Return the entries of the boot order; None if it is not known."""
    if inventory.boot_options is not None or inventory.boot_order is None:
        return inventory.boot_options
    return _of_words(inventory.boot_order)


@lru_cache(maxsize=1024)
def _of_words(order: tuple[str, ...]) -> Options:
    return tuple(BootOption(word) for word in order)


def word_of(option: BootOption) -> str:
    """Return the word by which reports show an entry: references differ between nodes, kinds do not."""
    return option.kind or option.reference


def words(options: Sequence[BootOption]) -> tuple[str, ...]:
    """Return the order in words, neighbours of one kind as one."""
    found: list[str] = []
    for option in options:
        if not found or found[-1] != word_of(option):
            found.append(word_of(option))
    return tuple(found)


def resolve(wanted: Sequence[str], options: Options) -> Options:
    """Return the entries that come first, in the wanted order.

    A word is an entry's reference, display name or device path, or a kind: all enabled entries of that kind, in their
    present order. Raise NoSuchEntry for a word that names none.
    """
    return tuple(dict.fromkeys(option for word in wanted for option in _named(word, options)))


def is_as_wanted(wanted: Sequence[str], options: Options) -> bool:
    """Return whether the boot order begins as wanted. What follows is unmanaged, and disabled entries don't count."""
    first = resolve(wanted, options)
    return tuple(option for option in options if _counts(option) or option in first)[: len(first)] == first


@lru_cache(maxsize=8192)  # nodes keep their entries from pass to pass
def as_words(wanted: tuple[str, ...], options: Options) -> tuple[str, ...]:
    """Return the wanted words if the order begins as they say, else its own words up to the last that is wanted.

    Raise NoSuchEntry if an entry that was not published may decide it.
    """
    try:
        if is_as_wanted(wanted, options):
            return wanted
    except NoSuchEntry as error:
        if error.hidden:
            raise
    declared = {normalise.text(entry): entry for entry in wanted}
    entries = [declared.get(normalise.text(entry), entry) for entry in words(options)]
    last = max((at for at, entry in enumerate(entries, 1) if entry in wanted), default=0)
    return tuple(entries[: max(last, len(wanted))])


def _named(word: str, options: Options) -> Options:
    same = normalise.text(word)
    for names in (lambda o: (o.reference, o.name, o.path), lambda o: (o.kind,)):
        found = tuple(o for o in options if same in map(normalise.text, names(o)))
        if found:
            return tuple(o for o in found if _counts(o)) or found
    listed = Counter(word_of(option) for option in options)
    there = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in listed.items()) or "none"
    hidden = any(HIDDEN in (option.name, option.path) for option in options)
    raise NoSuchEntry(f"no boot entry {word!r}; there are: {there}", hidden)


def _counts(option: BootOption) -> bool:
    return option.enabled is not False
