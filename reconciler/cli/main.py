"""The `reconciler` command. Each command is imported when it is called, so that --help answers at once.

The modules of `validate`, `plan` and `apply` import their options alone, and what they work with when they run; all
of it before they act, since a run may outlive the files that it was started from.
"""

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
from reconciler.cli.terminal import discard, say
from reconciler.cli.verbosity import with_option
from reconciler.model.errors import ReconcilerError
from reconciler.render.text import plain

# Millions of frozen values form no cycles; scanning them for some costs a quarter of a pass over a large fleet.
COLLECT: Final = (50_000, 20, 100)

# name -> (module, summary for --help), in the order in which a new user needs them
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("init", "Write the spec of a fleet that has none."),
    "validate": ("validate", "Check a spec, and contact nothing."),
    "doctor": ("doctor", "Check programs, secrets, ledger and reachability."),
    "observe": ("observe", "Read every node and print the observation."),
    "status": ("status", "Show how the fleet stands, and what runs."),
    "get": ("get", "List nodes or pools, by spec and ledger."),
    "drift": ("drift", "Show how the nodes differ from the spec."),
    "adopt": ("adopt", "Accept drift by editing the spec."),
    "inventory": ("inventory", "Keep the nodes of the spec in step with an inventory."),
    "plan": ("plan", "Show what would be done, and why."),
    "rehearse": ("rehearse", "Simulate a rollout in virtual time."),
    "apply": ("apply", "Converge the nodes, under one disruption budget."),
    "run": ("run", "Keep the fleet converged, as a service."),
    "worker": ("worker", "Read the nodes of one site for an engine."),
    "show": ("show", "Render a document from its file."),
    "comment": ("comment", "Report on pull requests, commits and issues."),
    "forge": ("forge", "Ask the forge who approved a change."),
    "explain": ("explain", "Explain one node, or one value of it."),
    "history": ("history", "Show the history of a node."),
    "logs": ("logs", "Print the journal of the fleet or of nodes, and follow it."),
    "gate": ("gate", "Run gates by hand, and show what gates measured."),
    "report": ("report", "Report availability, drift and actions of a period."),
    "hold": ("hold", "Forbid actions on a node or a pool, or list the holds."),
    "release": ("hold", "Release the holds of a node or a pool."),
    "isolation": ("isolation", "List isolated nodes, or retract a health signal."),
    "repair": ("repair", "Guide the exchange of a part, or list what waits."),
    "cluster": ("cluster", "Restore a K3s cluster, take a lost server out of it, or take it away."),
    "stop": ("stop", "Stop the whole fleet."),
    "resume": ("stop", "Lift the stop of the whole fleet, and the storm brake."),
    "notify": ("notify", "Try the channels through which people are told."),
    "lease": ("lease", "List leases, or release one."),
    "ledger": ("ledger", "Show the ledger, take over nodes, or waive tests."),
    "migrate": ("migrate", "Bring the ledger to another version."),
    "reference": ("reference", "Build what peers measured, for bars by peers."),
    "host-keys": ("host_keys", "List the SSH host keys of nodes, or export those that are revoked."),
    "audit": ("audit", "Verify or list the journal."),
    "installer": ("installer", "Build the installer that writes images to machines."),
    "conformance": ("conformance", "Check a BMC, host, database or forge against what is needed."),
    "completion": ("completion", "Print the completion script of a shell."),
    "schema": ("schema", "Print or write the JSON Schemas."),
    "image": ("image", "Build, sign and inspect images of nodes."),
    "lab": ("lab", "Run a simulated fleet on loopback."),
    "demo": ("demo", "Converge a drifted fleet in a lab."),
}


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"reconciler.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return with_option(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from reconciler.model.errors import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(f"{error.message.rstrip('.')}; {hint}" if hint else error.message, ctx) from None

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _print_versions(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        from reconciler.app.extensions import versions

        say(f"reconciler, version {__version__}", *versions())
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_versions,
              help="Show the version, and the extensions that are installed, and exit.")  # fmt: skip
def cli() -> None:
    """Keep a fleet of GPU nodes converged to the spec in its git repository.

    SPEC is a directory; its default is ./fleet-spec. Documents go to stdout, progress to stderr.
    Exit codes: docs/reference/exit-codes.md.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with a code of DESIGN section 11."""
    gc.set_threshold(*COLLECT)
    try:
        code = run(arguments)
    except KeyboardInterrupt:  # a second Ctrl-C while the first was being reported
        code = ExitCode.INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop, and the exit code is decided
    if code == ExitCode.INTERRUPTED:
        # Everything is closed and printed. Python would wait for its threads, and a hanging BMC blocks one for long.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    gc.freeze()  # or Python would search all that is left for cycles: 0.1 s of a validate, 0.5 s of a plan
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. A crash in the work on one node makes it 1; the document is complete."""
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
        say(
            *(plain(line, 4000) for line in (f"reconciler: {first}", *more)), err=True
        )  # the message may quote a machine
        return exit_code_of(error)
    except (BrokenPipeError, SystemExit):  # click turns a broken pipe into a SystemExit
        discard(sys.stdout)
        return ExitCode.DONE
    except OSError as error:
        if error.errno not in _FULL:
            raise
        say(f"reconciler: the document can't be written: {error.strerror}", err=True)
        discard(sys.stdout)
        return ExitCode.INTERNAL_ERROR
    return int(code) if isinstance(code, int) else ExitCode.DONE
