"""The extensions that a fleet names, as use cases need them: loaded, checked against the spec, and shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from reconciler.drivers.extensions import (
    Extensions,
    HealthSignals,
    HostFact,
    InstallerServer,
    extensions_of,
    installed,
)
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.ssh.facts.extended import Extended, ExtendedSignals, fact
from reconciler.model.access import InstallerPolicy, PinnedExtension
from reconciler.model.desired import Settings
from reconciler.model.errors import UsageError
from reconciler.model.ports import Installer
from reconciler.spec.kinds.signals import RAISED


def loaded(settings: Settings) -> Extensions:
    return extensions_of(settings.extensions)


def extended_facts(settings: Settings) -> Extended:
    """Return what extensions add to the facts of hosts. Raise UsageError for one that does not fit."""
    found = loaded(settings)
    facts, signals = found.all(HostFact), found.all(HealthSignals)
    rows = {change.name: change for change in settings.health}
    for name, one in signals.items():
        for lacking in set(one.reads) - set(facts):
            raise UsageError(f"extension signals {name!r} read the fact {lacking!r}, which no named package offers")
        for signal in one.names:
            if signal not in rows or rows[signal].keys().get("fact") != RAISED:
                raise UsageError(
                    f"extension signals {name!r} may raise {signal!r}: give it a row in the Fleet's `health` with "
                    f"`fact: {RAISED}`, so that what follows from it is reviewed (docs/how-to/extend.md)"
                )
    return Extended(
        tuple(fact(name, one.command, one.parse, one.timeout_s) for name, one in facts.items()),
        tuple(ExtendedSignals(one.names, one.reads, one.judge) for one in signals.values()),
    )


def check_extensions(settings: Settings) -> None:
    """Load all extensions that are named. Raise UsageError for the first that does not fit."""
    loaded(settings).check()
    extended_facts(settings)


@lru_cache(maxsize=8)
def other_installer(
    extensions: tuple[PinnedExtension, ...], policy: InstallerPolicy, secrets: SecretStore
) -> Installer:
    """Return the installer of an extension, the same for the whole process. Raise UsageError."""
    return extensions_of(extensions).one(InstallerServer, policy.via).connect(policy, secrets)


def examine_extensions(settings: Settings) -> Iterator[tuple[str, bool, str, str]]:
    """Yield a check, whether it is well, what was found and what to do: each named package, and those not named."""
    named = {pin.package for pin in settings.extensions}
    for one in installed():
        offers = "; ".join(
            f"{group.removeprefix('reconciler.')}: {', '.join(names)}" for group, names in one.offers.items()
        )
        if one.package not in named:
            yield (
                "extensions",
                True,
                f"{one.package} {one.version} ({offers}) is installed and not named: not loaded",
                "",
            )
            continue
        yield f"extension {one.package}", True, f"{one.version}: {offers}", ""
    try:
        check_extensions(settings)
    except UsageError as error:
        yield "extensions", False, str(error), "see docs/how-to/extend.md"


def versions() -> Sequence[str]:
    """Return a line for each installed package that offers extensions, whether a fleet names it or not."""
    return [f"{one.package} {one.version} (extension)" for one in installed()]
