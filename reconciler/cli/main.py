"""The `reconciler` command. Commands load when they are called, so that --help answers at once."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
from typing import Any, Final

import click

from reconciler import __version__
from reconciler.cli.crash_reports import reported_crashes
from reconciler.cli.exit_codes import ExitCode, exit_code_of, strongest
from reconciler.cli.terminal import leave, say
from reconciler.model.errors import ReconcilerError
from reconciler.render.text import plain

# Frozen values by the million make no cycles; looking for some costs a quarter of a pass over a large fleet.
COLLECT: Final = (50_000, 20, 100)

# name -> (module, one line for --help). The order is the order of a first day's work.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("init", "Write the spec of a fleet that has none."),
    "validate": ("validate", "Check a spec; contact nothing."),
    "doctor": ("doctor", "Check what the reconciler needs, and say what to do."),
    "observe": ("observe", "Read every node; write what was seen."),
    "drift": ("drift", "Say how the nodes differ from the spec."),
    "adopt": ("adopt", "Accept what nodes have: edit the spec."),
    "plan": ("plan", "Say what would be done, and why."),
    "rehearse": ("rehearse", "Play it on simulated nodes, in virtual time."),
    "apply": ("apply", "Do it, under one budget."),
    "run": ("run", "Keep the fleet as specified, for as long as it runs."),
    "show": ("show", "Render a plan, drift report or observation from its file."),
    "comment": ("comment", "Report on pull requests, commits and issues."),
    "explain": ("explain", "Tell all about one node, or one value of it."),
    "history": ("history", "Tell a node's story from the ledger."),
    "report": ("report", "Tell what happened to the fleet: availability, drift, recoveries."),
    "hold": ("hold", "Forbid acting on a node or a pool; without one, list what is held."),
    "release": ("hold", "Lift a hold."),
    "isolation": ("isolation", "List nodes taken out on evidence of illness, or retract a signal that was wrong."),
    "stop": ("stop", "Stop the whole fleet: nothing begins any more."),
    "resume": ("stop", "Lift the stop of the whole fleet, and the storm brake."),
    "lease": ("lease", "List who writes, or take a lease away."),
    "ledger": ("ledger", "Tell about the ledger, or take over nodes of another one."),
    "audit": ("audit", "Check that the journal is as it was written, or list it."),
    "schema": ("schema", "Print or write the JSON Schemas."),
    "lab": ("lab", "An embedded fleet on loopback."),
    "demo": ("demo", "Watch a drifted fleet being converged, in a lab."),
}


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"reconciler.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from reconciler.spec.model_errors import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(f"{error.message.rstrip('.')}; {hint}" if hint else error.message, ctx) from None

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="reconciler")
def cli() -> None:
    """Keep a fleet of GPU nodes as its git repository says.

    SPEC is a directory, ./fleet-spec if left out. stdout is the document, stderr is progress. Exit codes: README.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with a code of DESIGN section 11."""
    gc.set_threshold(*COLLECT)
    try:
        code = run(arguments)
    except KeyboardInterrupt:  # the second one, while the first was being told
        code = ExitCode.INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop, and the exit status is decided
    if code == ExitCode.INTERRUPTED:
        # All is closed and told. Python would wait for threads, and a BMC that hangs keeps its thread for long.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """A bug that showed in the work on one node makes the code 1, as the table has it: the document is whole."""
    with reported_crashes() as crashes:
        code = _run(arguments)
    return strongest([code, crashes.code]) if crashes.count else code


def _run(arguments: list[str] | None) -> int:
    try:
        code: Any = cli.main(args=arguments, prog_name="reconciler", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        say(*error.format_message().split("\n"), err=True)
        return ExitCode.USAGE
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("reconciler: interrupted", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        say(f"reconciler: {error.format_message()}", err=True)
        return ExitCode.USAGE
    except ReconcilerError as error:
        first, *more = error.lines()
        say(*(plain(line, 4000) for line in (f"reconciler: {first}", *more)), err=True)  # machines have a say in it
        return exit_code_of(error)
    except (BrokenPipeError, SystemExit):  # SystemExit: click's way to say the same
        leave(sys.stdout)
        return ExitCode.DONE
    except OSError as error:
        if error.errno not in _FULL:
            raise
        say(f"reconciler: the document can't be written: {error.strerror}", err=True)
        leave(sys.stdout)
        return ExitCode.INTERNAL_ERROR
    return int(code) if isinstance(code, int) else ExitCode.DONE
