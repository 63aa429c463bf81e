"""Find extensions in the metadata of installed packages, and import those that were named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, distributions
from typing import Any, Final, TypeVar

from reconciler.drivers.extensions.api import (
    API,
    Extension,
    ForgeConnector,
    GateTool,
    HealthSignals,
    HostFact,
    InstallerServer,
    Notifier,
)
from reconciler.drivers.extensions.fit import NAME, ExtensionRefused, misfit
from reconciler.model.access import PinnedExtension
from reconciler.model.errors import did_you_mean

T = TypeVar("T", bound=Extension)

KINDS: Final[tuple[type[Extension], ...]] = (
    HostFact, HealthSignals, GateTool, Notifier, InstallerServer, ForgeConnector,
)  # fmt: skip
_IMPORTED: Final[dict[str, str]] = {}  # package -> the version whose code this process runs, until it ends


@dataclass(frozen=True, slots=True)
class Installed:
    """A package with entry points of ours, by its metadata alone. `offers`: group -> names."""

    package: str
    version: str
    offers: Mapping[str, tuple[str, ...]]


def installed() -> list[Installed]:
    """Return the packages that offer extensions, whether named or not. None of their code is imported."""
    found: dict[str, Installed] = {}
    for one in distributions():
        offers = {kind.GROUP: tuple(entry.name for entry in _entries(one, kind)) for kind in KINDS}
        if any(offers.values()):
            package = _normal(one.metadata["Name"])
            found.setdefault(
                package, Installed(package, one.version, {group: names for group, names in offers.items() if names})
            )
    return [found[package] for package in sorted(found)]


@dataclass(frozen=True, slots=True)
class Offered:
    """An extension of a package. `load` imports it, and raises ExtensionRefused for one that does not fit."""

    kind: type[Extension]
    name: str
    load: Callable[[], Extension]


def offered(package: str, version: str = "") -> list[Offered]:
    """Return what a package offers, named or not. "": in the version that is there. Raise ExtensionRefused."""
    pin = PinnedExtension(_normal(package), version or _version(package))
    return [
        Offered(kind, entry.name, partial(_checked, pin, entry, kind))
        for kind in KINDS
        for entry in _entries(_pinned(pin), kind)
    ]


class Extensions:
    """The extensions of the named packages. Each kind is imported when it is first asked for."""

    def __init__(self, pinned: Sequence[PinnedExtension]) -> None:
        self._pinned = pinned
        self._loaded: dict[str, Mapping[str, Any]] = {}

    def all(self, kind: type[T]) -> Mapping[str, T]:
        """Return all extensions of a kind by name. Raise ExtensionRefused."""
        if kind.GROUP not in self._loaded:
            self._loaded[kind.GROUP] = dict(self._load(kind))
        return self._loaded[kind.GROUP]

    def one(self, kind: type[T], name: str) -> T:
        """Return an extension by its name. Raise ExtensionRefused."""
        known = self.all(kind)
        if name not in known:
            hint = did_you_mean(name, known) or f"they offer {', '.join(known) or 'none'}"
            raise ExtensionRefused(f"no extension that is named offers {name!r} in {kind.GROUP}: {hint}")
        return known[name]

    def check(self) -> None:
        """Load all of them. Raise ExtensionRefused for the first that does not fit."""
        for kind in KINDS:
            self.all(kind)

    def _load(self, kind: type[T]) -> Iterator[tuple[str, T]]:
        taken: dict[str, str] = {}
        for pin in self._pinned:
            for entry in _entries(_pinned(pin), kind):
                if entry.name in taken:
                    raise ExtensionRefused(
                        f"{pin.package} and {taken[entry.name]} both offer {entry.name!r} in {kind.GROUP}: name one"
                    )
                taken[entry.name] = pin.package
                yield entry.name, _checked(pin, entry, kind)


@lru_cache(maxsize=16)
def extensions_of(pinned: tuple[PinnedExtension, ...]) -> Extensions:
    """Return the extensions of these packages, the same object for the whole process: code is loaded once."""
    return Extensions(pinned)


def forge_extension(setting: str) -> ForgeConnector:
    """Return the forge of a setting PACKAGE==VERSION, whose package offers one. Raise ExtensionRefused."""
    package, separator, version = setting.partition("==")
    if not package or not separator or not version:
        raise ExtensionRefused(f"RECONCILER_FORGE={setting} is no PACKAGE==VERSION")
    found = extensions_of((PinnedExtension(_normal(package), version),)).all(ForgeConnector)
    if len(found) != 1:
        raise ExtensionRefused(f"{setting} offers {', '.join(found) or 'no forge'}: it must offer one")
    return next(iter(found.values()))


def _version(package: str) -> str:
    try:
        return distribution(package).version
    except PackageNotFoundError:
        raise ExtensionRefused(f"extension {package} is not installed: pip install it first") from None


def _pinned(pin: PinnedExtension) -> Distribution:
    try:
        found = distribution(pin.package)
    except PackageNotFoundError:
        todo = f"pip install {pin.package}=={pin.version}, or take it out of `extensions`"
        raise ExtensionRefused(f"extension {pin.package} is not installed: {todo}") from None
    if found.version != pin.version:
        raise ExtensionRefused(
            f"extension {pin.package} is installed as {found.version}, and {pin.version} is named: install that, or "
            "name the other after a review"
        )
    return found


def _entries(package: Distribution, kind: type[Extension]) -> list[EntryPoint]:
    return sorted(package.entry_points.select(group=kind.GROUP), key=lambda entry: entry.name)


def _checked(pin: PinnedExtension, entry: EntryPoint, kind: type[T]) -> T:
    where = f"extension {pin.package} {pin.version}: {entry.name!r} in {kind.GROUP}"
    if not NAME.fullmatch(entry.name):
        raise ExtensionRefused(f"{where}: a name is a-z, 0-9 and _, and begins with a letter; ask its author")
    first = _IMPORTED.setdefault(_normal(pin.package), pin.version)  # before the import, which may end half-way
    if first != pin.version:
        raise ExtensionRefused(f"{where}: this process runs the code of {first} until it ends; restart the service")
    try:
        found = entry.load()
    except Exception as error:  # a module of others may raise anything while it is imported
        raise ExtensionRefused(
            f"{where} can't be imported: {type(error).__name__}: {error}; install what it needs"
        ) from error
    if not isinstance(found, kind):
        raise ExtensionRefused(f"{where} is a {type(found).__name__}, not a {kind.__name__}; ask its author")
    if type(found.api) is not int:
        raise ExtensionRefused(f"{where} says api={str(found.api)[:80]!r}, which is no number; ask its author")
    if found.api != API:
        newer = "upgrade the reconciler" if found.api > API else f"install a version of {pin.package} for API {API}"
        raise ExtensionRefused(f"{where} is written for API {found.api}, and this reconciler has API {API}: {newer}")
    if why := misfit(found, kind):
        raise ExtensionRefused(f"{where}: {why}; ask its author")
    return found


def _normal(package: str) -> str:
    """Return the normalised name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()
