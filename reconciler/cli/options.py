"""Options that several commands share, and the values that they are parsed into."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from reconciler.app.ports import AllowedSigners, FleetRequest, PlanSource, RecordTarget
from reconciler.cli.completion import expressions
from reconciler.cli.crash_reports import CRASHES
from reconciler.model.access_role import AccessRole
from reconciler.model.printable import shown_url
from reconciler.model.units import parse_duration

F = TypeVar("F", bound=Callable[..., Any])

OUTPUTS = ("human", "json", "markdown")
_BRANCH = "branch:"
_COMMANDLINE = click.core.ParameterSource.COMMANDLINE


class Duration(click.ParamType[float]):
    """A duration such as 10m, 1h30m or 0, parsed into seconds."""

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


class Roles(click.ParamType[tuple[str, AccessRole]]):
    """A name with a role of the API, such as alice=operator."""

    name = "role"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, AccessRole]:
        name, _, role = value.rpartition("=")
        if not name or role not in list(AccessRole):
            self.fail(f"{value!r} is no NAME=ROLE; roles are {', '.join(AccessRole)}", param, ctx)
        return name, AccessRole(role)


def by_name(
    _ctx: click.Context, param: click.Parameter, given: tuple[tuple[str, AccessRole], ...]
) -> dict[str, AccessRole]:
    """Return names with their roles. Raise BadParameter for a name that is given twice."""
    found = dict(given)
    if len(found) < len(given):
        raise click.BadParameter("a name is given twice", param=param)
    return found


class Since(click.ParamType[timedelta | datetime]):
    """A duration such as 2h or 3d before now, or an instant, which is in UTC unless it names a time zone."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta | datetime:
        try:
            return timedelta(seconds=parse_duration(value))
        except ValueError:
            pass
        try:
            at = datetime.fromisoformat(value)
            return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):  # overflow: the first or last day of the calendar
            self.fail(f"{value!r} is neither a duration (2h, 3d) nor a time (2026-11-21, 2026-11-21T03:00)", param, ctx)


class TimeScale(click.FloatRange):
    """A factor by which the clock of a lab is faster than the wall clock."""

    name = "factor"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=1_000_000)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if math.isnan(factor := float(super().convert(value, param, ctx))):  # NaN passes every bound
            self.fail(f"{value!r} is not a number", param, ctx)
        return factor


class OutFile(click.Path):
    """A file to write. It is checked before a fleet is read, so that no pass is made in vain."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no directory {path.parent}", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"directory {path.parent} is not writable", param, ctx)
        return path


def ledger_option(
    help_text: str = "Ledger: a file or a postgresql:// URL. Default: a file for each fleet in the state directory.",
) -> Callable[[F], F]:
    return click.option("--ledger", envvar="RECONCILER_LEDGER", metavar="URL", help=help_text)


create_ledger_option = click.option(
    "--create-ledger", is_flag=True,
    help="Make the ledger when it is not there, as apply and run do. What only reads makes none by itself.",
)  # fmt: skip


def endpoints_option(
    help_text: str = "endpoints.json of a lab: the loopback address of each address in the spec.",
) -> Callable[[F], F]:
    return click.option(
        "--endpoints", envvar="RECONCILER_ENDPOINTS", type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE", help=help_text,
    )  # fmt: skip


engine_tls_option = click.option(
    "--engine-tls", envvar="RECONCILER_ENGINE_TLS", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help="Directory with ca.pem, cert.pem and key.pem of the engine. Default: engine beside the secrets file.",
)  # fmt: skip
engine_options = (
    click.option("--engine", envvar="RECONCILER_ENGINE", metavar="URL",
                 help="Have nodes read by the workers of this Dask scheduler, tls://host:port."),
    engine_tls_option,
)  # fmt: skip


class SiteName(click.ParamType[str]):
    """A value of the failure domain `site`."""

    name = "site"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        return text if text.strip() and text.isprintable() else self.fail("a site has a name", param, ctx)


spec_argument = click.argument("spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"))


def fleet_options(*, rev: bool = False, engine: bool = False) -> Callable[[F], F]:
    """Add SPEC, --limit, --exclude, --ledger, --endpoints, --rev and --engine as one FleetRequest, and --output."""
    options = [
        spec_argument,
        output_option,
        click.option("--limit", multiple=True, metavar="EXPR", shell_complete=expressions,
                     help="Select only these nodes: a name, gpu-a*, gpu-a[001-008], pool=P or rack=R."),
        click.option("--exclude", multiple=True, metavar="EXPR", shell_complete=expressions,
                     help="Leave these nodes out. Same syntax as --limit, applied after it."),
        endpoints_option(),
        ledger_option(),
        create_ledger_option,
    ]  # fmt: skip
    if rev:
        options.insert(2, click.option("--rev", metavar="REV", help="Read the spec at this git revision."))
    return grouped(FleetRequest, *options, *(engine_options if engine else ()))


def spec_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Add --spec, --ledger and --endpoints, passed as one FleetRequest.

    They suit commands whose argument is not a spec. `options` replaces the option for the spec.
    """
    spec = click.option(
        "--spec", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec"), show_default=True,
        metavar="SPEC",
    )  # fmt: skip
    ledger = ledger_option("Ledger: a file or a postgresql:// URL.")
    return grouped(FleetRequest, *(options or (spec,)), ledger, create_ledger_option, endpoints_option())


def location_options() -> str:
    """Return the --endpoints and --ledger that the user gave, for a command that a message suggests.

    A password in the URL is masked.
    """
    context = click.get_current_context()
    given = [name for name in ("endpoints", "ledger") if context.get_parameter_source(name) is _COMMANDLINE]
    return "".join(f" --{name} {shlex.quote(shown_url(str(context.params[name])))}" for name in given)


def output_option(function: F) -> F:
    choice = click.Choice(OUTPUTS)
    return click.option(
        "--output", "-o", type=choice, default="human", show_default=True, help="Format of the document on stdout."
    )(function)


def grouped(kind: type[Any], *options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Add options, and pass those named like fields of the dataclass `kind` to the command as one value of it.

    Several such values are positional arguments, in the order of the decorators.
    """
    names = [field.name for field in fields(kind)]

    def decorate(function: F) -> F:
        def call(*groups: Any, **given: Any) -> Any:
            group = kind(**{name: given.pop(name) for name in names if name in given})
            return function(*groups, group, **given)

        call.__doc__ = function.__doc__
        call.__name__ = function.__name__
        call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]  # where click keeps them
        wrapped: Any = call
        for option in reversed(options):
            wrapped = option(wrapped)
        return cast("F", wrapped)

    return decorate


detailed_exitcode = click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit with 2 when there is drift, a value that is not known, a change to make, or a node that waits.",
)

publish_option = click.option(
    "--publish", type=OutFile(), metavar="FILE",
    help="Also write an observation for offline plans, with digests in place of serials and host names.",
)  # fmt: skip


class RecordTargetType(click.ParamType[RecordTarget]):
    """branch:NAME of the spec's repository, or a directory."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RecordTarget:
        if isinstance(value, RecordTarget):
            return value
        text = str(value)
        if text.startswith(_BRANCH):
            branch = text.removeprefix(_BRANCH)
            return RecordTarget(branch) if branch else self.fail("branch: needs a name", param, ctx)
        path = Path(text)
        if path.exists() and not path.is_dir():
            self.fail(f"{text} is a file: name a directory, or branch:NAME", param, ctx)
        return RecordTarget(directory=path)


record_option = click.option(
    "--record", "record_to", type=RecordTargetType(), metavar="PLACE",
    help="Also record changes in branch:NAME of the spec's repository, a commit for each, or in a directory.",
)  # fmt: skip


def _make_crash_reports_terse(_ctx: click.Context, _option: click.Parameter, redact: bool) -> bool:
    CRASHES.terse = redact
    return redact


redact_option = click.option(
    "--redact", is_flag=True, envvar="RECONCILER_REDACT", callback=_make_crash_reports_terse,
    help="Leave serials, host names and addresses of machines out of all output.",
)  # fmt: skip


def signer_options(function: F) -> F:
    """Add --allowed-signers and --allowed-keys, passed as one AllowedSigners."""
    signers = click.option(
        "--allowed-signers", "ssh", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        envvar="RECONCILER_ALLOWED_SIGNERS",
        help="Accept only commits signed with SSH by one of these signers (ALLOWED SIGNERS in ssh-keygen(1)).",
    )  # fmt: skip
    keys = click.option(
        "--allowed-keys", "gpg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        envvar="RECONCILER_ALLOWED_KEYS",
        help="Accept only commits signed with one of these OpenPGP public keys.",
    )  # fmt: skip
    return grouped(AllowedSigners, signers, keys)(function)


def plan_source_options(*, observation: str, base: str) -> Callable[[F], F]:
    """Add --observation, --base and --head with these help texts, passed as one PlanSource."""
    return grouped(
        PlanSource,
        observation_option(observation),
        click.option("--base", metavar="REV", help=base),
        click.option("--head", metavar="REV", help="Revision that the change leads to. Default: the work tree."),
    )


def observation_option(help_text: str) -> Callable[[F], F]:
    file = click.Path(path_type=Path, exists=True, dir_okay=False)
    return click.option("--observation", type=file, metavar="FILE", help=help_text)


def ledger_location_options(function: F) -> F:
    """Add SPEC, --fleet, --ledger and --endpoints, passed as one FleetRequest."""
    return grouped(
        FleetRequest,
        spec_argument,
        click.option("--fleet", metavar="NAME", help="Name of the fleet, in place of SPEC."),
        ledger_option("Ledger: a file or a postgresql:// URL, in place of SPEC."),
        create_ledger_option,
        endpoints_option("endpoints.json of a lab, whose ledger is in the same directory."),
    )(function)
