"""Checks of a package of extensions, for its author and for whoever reviews it: each extension by itself.

    bench   calls of others' code, and what broken nodes print
    facts   facts of hosts, and signals
    tools   tools of the gate

What only computes is given what a broken node prints. A driver whose other side is a server has a suite of its own,
which is named. Nothing is contacted; with `here`, the commands of facts are run on this machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from reconciler.drivers.extensions.api import (
    Extension,
    ForgeConnector,
    GateTool,
    HealthSignals,
    HostFact,
    InstallerServer,
    Notifier,
)
from reconciler.drivers.extensions.conformance.bench import API, Bench
from reconciler.drivers.extensions.conformance.facts import FACT, HERE, SIGNALS
from reconciler.drivers.extensions.conformance.tools import TOOL
from reconciler.drivers.extensions.fit import ExtensionRefused
from reconciler.drivers.extensions.load import Offered
from reconciler.drivers.probes import Probe, WrongAnswerError, run_probes
from reconciler.model.conformance import Check, CheckOutcome, CheckResult, ConformanceReport


async def _fits(bench: Bench) -> None:
    try:
        bench.found = bench.offered.load()
    except ExtensionRefused as refused:
        raise WrongAnswerError(str(refused)) from None


FITS: Final[Probe[Bench]] = (
    Check("fits", f"{API}: the class of its group", "nothing begins with a Fleet that names the package"),
    _fits,
)
_OWN: Final = Check("own-suite", "docs/how-to/conformance.md", "what it does is not tried")
_PROBES: Final[Mapping[type[Extension], tuple[Probe[Bench], ...]]] = {
    HostFact: FACT,
    HealthSignals: SIGNALS,
    GateTool: TOOL,
}
_SUITES: Final[Mapping[type[Extension], str]] = {
    Notifier: "reconciler conformance notifier CHANNEL",
    InstallerServer: "reconciler conformance installer",
    ForgeConnector: "RECONCILER_FORGE=PACKAGE==VERSION reconciler conformance forge OWNER/NAME",
}
ALL: Final = (*(check for check, _ in (FITS, *FACT, HERE, *SIGNALS, *TOOL)), _OWN)


async def check_extension(offered: Offered, facts: Collection[str], *, here: bool) -> ConformanceReport:
    """Try one extension. `facts`: names of those of its package. `here`: the command of a fact is run."""
    probes = (FITS, *_PROBES.get(offered.kind, ()))
    if here and offered.kind is HostFact:
        probes = (*probes, HERE)
    found = await run_probes(probes, Bench(offered, facts), writes=False, first="fits")
    if not here and offered.kind is HostFact:
        found += (CheckOutcome(HERE[0], CheckResult.NOT_TRIED, "needs --here"),)
    if suite := _SUITES.get(offered.kind):
        found += (CheckOutcome(_OWN, CheckResult.NOT_TRIED, f"`{suite}` tries it"),)
    return ConformanceReport("extension", f"{offered.name} in {offered.kind.GROUP}", found)
