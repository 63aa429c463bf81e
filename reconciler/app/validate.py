"""The `validate` use case: check a spec, and contact nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reconciler.app.clocks import RealClock
from reconciler.drivers.git import describe, read_revision
from reconciler.model.desired import Fleet
from reconciler.model.errors import Diagnostic, UsageError
from reconciler.spec import check_spec


def validate_spec(spec: Path, rev: str | None) -> tuple[Fleet | None, tuple[Diagnostic, ...]]:
    """Return the fleet, or None for an invalid spec, and every diagnostic. `rev`: None reads the work tree."""
    source: Path | Mapping[str, bytes] = spec
    if rev is None:
        check_directory(spec)
        origin = describe(spec)
    else:
        source, origin = read_revision(spec, rev)
    return check_spec(source, directory=str(spec), origin=origin, now=RealClock().now())


def check_directory(spec: Path) -> None:
    """Raise UsageError unless the directory exists: a wrong path is no invalid spec."""
    if not spec.is_dir():
        raise UsageError(f"there is no directory {spec}: give the directory of the spec, or change to its parent")
