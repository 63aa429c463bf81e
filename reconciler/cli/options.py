"""Options that several commands share, and the values they make."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from reconciler.model.errors import ReconcilerError
from reconciler.model.printable import shown_url
from reconciler.model.units import parse_duration

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("human", "json", "markdown")
_COMMANDLINE = click.core.ParameterSource.COMMANDLINE


class Duration(click.ParamType[float]):
    """10m, 1h30m, 0: seconds as a float."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        if value == "0":
            return 0.0
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class TimeScale(click.FloatRange):
    """How much faster than time the clock of a lab goes."""

    name = "factor"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=1_000_000)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if math.isnan(factor := float(super().convert(value, param, ctx))):  # which no bound holds back
            self.fail(f"{value!r} is not a number", param, ctx)
        return factor


class OutFile(click.Path):
    """A file to write. That it can't be written is said before a fleet is read for it, not after."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no directory {path.parent}", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"directory {path.parent} is not writable", param, ctx)
        return path


def write_file(path: Path, text: str) -> None:
    """All of it or nothing: a plan that is cut short is no plan. ReconcilerError when it can't be written."""
    whole = path.resolve()
    part = whole.with_name(f".{whole.name}.{os.getpid()}")
    try:
        if whole.exists() and not whole.is_file():  # a pipe, a terminal
            whole.write_text(text, encoding="utf-8")
            return
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(whole)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ReconcilerError(f"{path} can't be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Common:
    """What every command that works on a fleet is told."""

    spec: Path
    rev: str | None
    output: str
    limit: tuple[str, ...]
    exclude: tuple[str, ...]
    ledger: str | None
    endpoints: Path | None


def ledger_option(
    told: str = "Ledger: a file or a postgresql:// URL. Default: SQLite in the state directory, one file per fleet.",
) -> Callable[[F], F]:
    return click.option("--ledger", envvar="RECONCILER_LEDGER", metavar="URL", help=told)


def endpoints_option(
    told: str = "endpoints.json of a lab: loopback targets for the spec's addresses.",
) -> Callable[[F], F]:
    return click.option(
        "--endpoints", envvar="RECONCILER_ENDPOINTS", type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE", help=told,
    )  # fmt: skip


def fleet_options(*, rev: bool = False) -> Callable[[F], F]:
    """SPEC, --output, --limit, --exclude, --ledger, --endpoints (and --rev), handed over as one `common`."""

    def decorate(function: F) -> F:
        wrapped: Any = gather(function, _common)
        wrapped = ledger_option()(endpoints_option()(wrapped))
        wrapped = click.option(
            "--exclude", multiple=True, metavar="EXPR", help="Leave these nodes out; like --limit, applied after it."
        )(wrapped)
        wrapped = click.option(
            "--limit",
            multiple=True,
            metavar="EXPR",
            help="Only these: a name, gpu-a*, gpu-a[001-008], pool=P or rack=R.",
        )(wrapped)
        if rev:
            wrapped = click.option("--rev", metavar="REV", help="Read the spec at this git revision.")(wrapped)
        wrapped = output_option(wrapped)
        spec = click.argument("spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"))
        return cast("F", spec(wrapped))

    return decorate


def same_place() -> str:
    """Repeat the --endpoints and --ledger that the user gave, for the next command that a message suggests.

    A password is left for a person to fill in.
    """
    context = click.get_current_context()
    given = [name for name in ("endpoints", "ledger") if context.get_parameter_source(name) is _COMMANDLINE]
    return "".join(f" --{name} {shlex.quote(shown_url(str(context.params[name])))}" for name in given)


def output_option(function: F) -> F:
    choice = click.Choice(OUTPUTS)
    return click.option(
        "--output", "-o", type=choice, default="human", show_default=True, help="Form of the document on stdout."
    )(function)


def _common(given: dict[str, Any]) -> Common:
    return Common(
        spec=given.pop("spec"),
        rev=given.pop("rev", None),
        output=given.pop("output"),
        limit=given.pop("limit"),
        exclude=given.pop("exclude"),
        ledger=given.pop("ledger"),
        endpoints=given.pop("endpoints"),
    )


def gather(function: Callable[..., Any], take: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    """A command whose shared options arrive as one value: `take` makes it, and takes them out of what was given."""

    def call(**given: Any) -> Any:
        taken = take(given)
        return function(taken, **given)

    call.__doc__ = function.__doc__
    call.__name__ = function.__name__
    call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]  # options below us
    return call


detailed_exitcode = click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 2 when drift, changes or waits are present."
)
