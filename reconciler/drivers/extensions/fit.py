"""Say what of an extension does not fit, before a pass meets it: a slip of its author may cost nothing else."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from reconciler.drivers.extensions.api import (
    ForgeConnector,
    GateTool,
    HealthSignals,
    HostFact,
    InstallerServer,
    Notifier,
)
from reconciler.model.errors import UsageError

T = TypeVar("T")

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_LONGEST_S: Final = 600.0
# Class -> each field that is called, and with how many arguments.
_CALLED: Final[dict[type, Mapping[str, int]]] = {
    HostFact: {"parse": 1},
    HealthSignals: {"judge": 1},
    GateTool: {"command": 1, "read": 2},
    Notifier: {"send": 2},
    InstallerServer: {"connect": 2},
    ForgeConnector: {"connect": 4},
}


class ExtensionRefused(UsageError):
    """Raised for an extension that is not there, or does not fit. Its text says which, why, and what to do."""


def misfit(found: T, kind: type[T]) -> str:
    """Return the first field that does not fit its kind, and what it should be; "" where all do."""
    return next(_misfits(found, _CALLED[kind]), "")


def _misfits(found: object, calls: Mapping[str, int]) -> Iterator[str]:
    for name, count in calls.items():
        called = getattr(found, name)
        if not callable(called):
            yield f"{name}={_shown(called)} is no function"
        elif not _takes(called, count):
            yield f"{name} does not take {count} argument{'s' if count > 1 else ''}"
    if isinstance(found, HostFact):
        if not isinstance(found.command, str) or not found.command.strip() or "\0" in found.command:
            yield f"command={_shown(found.command)} is no command line"
        if not _is_number(found.timeout_s) or not 0 < found.timeout_s <= _LONGEST_S:
            yield f"timeout_s={_shown(found.timeout_s)} is no number of seconds from 0 to {_LONGEST_S:g}"
    elif isinstance(found, HealthSignals):
        for field in ("names", "reads"):
            value = getattr(found, field)
            if not _is_tuple_of(value, str) or not all(map(NAME.fullmatch, value)):
                yield f"{field}={_shown(value)} is no tuple of names such as ('raid_degraded',)"
    elif isinstance(found, GateTool) and not _is_tuple_of(found.statuses, int):
        yield f"statuses={_shown(found.statuses)} is no tuple of numbers such as (0,)"


def connected(what: str, connect: Callable[[], T], port: type) -> T:
    """Return what an extension connects to. Raise ExtensionRefused where it fails, or lacks a call of the port."""
    try:
        found = connect()
    except UsageError:
        raise
    except Exception as error:  # others' code may raise anything; the text of its errors may hold the secret
        raise ExtensionRefused(f"{what}: connect failed: {type(error).__name__}; ask its author") from error
    calls = [name for name, member in vars(port).items() if callable(member) and not name.startswith("_")]
    lacking = [name for name in calls if not callable(getattr(found, name, None))]
    if lacking:
        raise ExtensionRefused(
            f"{what}: connect returned a {type(found).__name__}, which lacks {', '.join(lacking)} of {port.__name__} "
            f"({port.__module__}); ask its author"
        )
    return found


def _takes(called: Callable[..., Any], count: int) -> bool:
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return True  # of a builtin: it tells nothing
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_tuple_of(value: object, kind: type) -> bool:
    return isinstance(value, tuple) and value != () and all(type(one) is kind for one in value)


def _shown(value: object) -> str:
    return repr(value)[:80]
