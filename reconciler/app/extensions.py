"""The extensions that a fleet names, as use cases need them: loaded, checked against the spec, and shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from reconciler.converge.gate import AcceptanceGate
from reconciler.drivers.extensions import (
    Extensions,
    GateTool,
    HealthSignals,
    HostFact,
    InstallerServer,
    connected,
    extensions_of,
    installed,
)
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.ssh.facts.extended import Extended, ExtendedSignals, fact
from reconciler.gate.tools.common import Tool
from reconciler.gate.tools.extension import USE, Program, tool_of
from reconciler.health.table import health_table
from reconciler.model.access import InstallerPolicy, PinnedExtension
from reconciler.model.desired import Fleet, GateTest, Settings
from reconciler.model.errors import UsageError, did_you_mean
from reconciler.model.gate_tools import EXTENSION
from reconciler.model.ports import Installer
from reconciler.spec.kinds.signals import RAISED


def loaded(settings: Settings) -> Extensions:
    return extensions_of(settings.extensions)


def extended_facts(settings: Settings) -> Extended:
    """Return what extensions and the fleet's own rows add to the facts of hosts.

    Raise UsageError for an extension that does not fit.
    """
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
        own_rows(settings),
    )


def own_rows(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return the rows of the fleet's own that look for a text in kernel logs: signal and text, in lower case."""
    return tuple(sorted(health_table(settings.health).own_lines.items()))


def gate_programs(fleet: Fleet) -> Mapping[str, Program]:
    """Return the gate tools of extensions by name. Raise UsageError for one that a test uses and nobody offers."""
    found = loaded(fleet.settings).all(GateTool)
    for node, test in _extension_tests(fleet):
        if test.args[USE] not in found:
            hint = did_you_mean(str(test.args[USE]), found) or f"they offer {', '.join(found) or 'none'}"
            raise UsageError(
                f"test {test.name!r} of {node}'s acceptance profile uses the gate tool {test.args[USE]!r}, which no "
                f"package under the Fleet's `extensions` offers: {hint}"
            )
    return {name: one.program for name, one in found.items()}


def acceptance_gate(public_key: Callable[[str], str | None], fleet: Callable[[], Fleet | None]) -> AcceptanceGate:
    """Return the gate with the tools of the extensions that the fleet names whose test it runs."""

    def extended() -> Tool:
        present = fleet()
        return tool_of({} if present is None else gate_programs(present))

    return AcceptanceGate(public_key, extended)


def _extension_tests(fleet: Fleet) -> Iterator[tuple[str, GateTest]]:
    """Yield each test that an extension runs, with the first node that has it.

    A node without an address runs none: one that only a pull request names, whose own `extensions` are not loaded yet.
    """
    seen: set[int] = set()
    for name, desired in fleet.nodes.items():
        acceptance = desired.profile.acceptance
        if desired.endpoints.host is not None and acceptance is not None and id(acceptance) not in seen:
            seen.add(id(acceptance))
            yield from ((name, test) for test in acceptance.tests if test.tool == EXTENSION)


def check_extensions(fleet: Fleet) -> None:
    """Load all extensions that are named. Raise UsageError for the first that does not fit."""
    loaded(fleet.settings).check()
    extended_facts(fleet.settings)
    gate_programs(fleet)


@lru_cache(maxsize=8)
def other_installer(
    extensions: tuple[PinnedExtension, ...], policy: InstallerPolicy, secrets: SecretStore
) -> Installer:
    """Return the installer of an extension, the same for the whole process. Raise UsageError."""
    server = extensions_of(extensions).one(InstallerServer, policy.via)
    return connected(f"the installer {policy.via!r}", lambda: server.connect(policy, secrets), Installer)


def examine_extensions(fleet: Fleet) -> Iterator[tuple[str, bool, str, str]]:
    """Yield a check, whether it is well, what was found and what to do: each named package, and those not named."""
    named = {pin.package for pin in fleet.settings.extensions}
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
        check_extensions(fleet)
    except UsageError as error:
        yield "extensions", False, str(error), "see docs/how-to/extend.md"


def versions() -> Sequence[str]:
    """Return a line for each installed package that offers extensions, whether a fleet names it or not."""
    return [f"{one.package} {one.version} (extension)" for one in installed()]
