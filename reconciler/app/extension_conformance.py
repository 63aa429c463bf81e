"""The `conformance extension` use case: what a package offers, whether a Fleet names it or not."""

from __future__ import annotations

from reconciler.app.runtime import run_async
from reconciler.drivers.extensions import HostFact
from reconciler.drivers.extensions.conformance import check_extension
from reconciler.drivers.extensions.load import offered
from reconciler.model.conformance import ConformanceReport
from reconciler.model.errors import UsageError


def check_package(named: str, *, here: bool) -> list[ConformanceReport]:
    """Run the suite on each extension of PACKAGE or PACKAGE==VERSION. `here`: commands of facts are run."""
    package, _, version = named.partition("==")
    found = offered(package, version)
    if not found:
        raise UsageError(f"{package} is installed and offers no extension: see docs/how-to/extend.md for entry points")
    facts = [one.name for one in found if one.kind is HostFact]

    async def run() -> list[ConformanceReport]:
        return [await check_extension(one, facts, here=here) for one in found]

    return run_async(run())
