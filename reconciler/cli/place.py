"""Where the ledger is, for commands that need nothing else: they work with a broken spec, and with none at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from reconciler.cli.options import Common, endpoints_option, gather, ledger_option
from reconciler.model.errors import UsageError

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.drivers.ledger import SqlLedger

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Place:
    spec: Path
    fleet: str | None
    ledger: str | None
    endpoints: Path | None

    def session(self) -> Session:
        from reconciler.app.session import Session

        return Session(Common(self.spec, None, "human", (), (), self.ledger, self.endpoints))

    @contextmanager
    def open(self, session: Session, *, create: bool = False) -> Iterator[SqlLedger]:
        """UsageError when there is none: an empty one that a typo made would protect nobody.

        `create`: make it, if it is the one of a spec.
        """
        name = self._name()
        where = session.ledger_place(name)
        file = _file(str(where))
        own = self.fleet is None and self.ledger is None
        if file is not None and not file.exists() and not (create and own):
            raise UsageError(
                f"there is no ledger {file}: no run has ever used it; name the right one with --ledger, --fleet, "
                "--endpoints or SPEC"
            )
        found = session.open_ledger(where)
        try:
            yield found
        finally:
            found.close()

    def _name(self) -> str:
        """Of the fleet, where the ledger is found by it."""
        if self.fleet is not None or self.ledger is not None or self.endpoints is not None:
            return self.fleet or ""
        from reconciler.app.session import check_directory
        from reconciler.spec.naming import fleet_name

        check_directory(self.spec)
        found = fleet_name(self.spec)
        if found is None:
            raise UsageError(f"{self.spec} does not say which fleet it is; name it with --fleet, or the --ledger")
        return found


def _file(where: str) -> Path | None:
    if "://" not in where:
        return Path(where)
    return Path(where.removeprefix("sqlite:///")) if where.startswith("sqlite:///") else None


def place_options(function: F) -> F:
    """SPEC, --fleet, --ledger and --endpoints, handed over as one `place`."""
    wrapped: Any = gather(function, _place)
    for option in (
        endpoints_option("endpoints.json of a lab, whose ledger lies beside it."),
        ledger_option("Ledger: a file or a postgresql:// URL. No spec is read then."),
        click.option("--fleet", metavar="NAME", help="Name of the fleet. No spec is read then."),
        click.argument("spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec")),
    ):  # fmt: skip
        wrapped = option(wrapped)
    return cast("F", wrapped)


def _place(given: dict[str, Any]) -> Place:
    return Place(*(given.pop(name) for name in ("spec", "fleet", "ledger", "endpoints")))
