"""reconciler conformance"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from reconciler.app.conformance import (
    KubernetesTarget,
    RedfishTarget,
    SshTarget,
    Writes,
    check_database,
    check_forge,
    check_kubernetes,
    check_redfish,
    check_ssh,
    chosen_checks,
)
from reconciler.app.extension_conformance import check_package
from reconciler.app.installer_conformance import SENTENCE, check_installer
from reconciler.app.notifier_conformance import check_channel
from reconciler.app.ports import FleetRequest
from reconciler.app.ticket_conformance import check_tickets
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.groups import Group
from reconciler.cli.options import endpoints_option, grouped, output_option, spec_options
from reconciler.cli.terminal import say, show
from reconciler.model.conformance import CheckResult, ConformanceReport
from reconciler.model.errors import UsageError
from reconciler.model.observed import AttributeValue
from reconciler.render.conformance import as_json, as_markdown, human


@click.group(cls=Group)
def conformance() -> None:
    """Check a BMC, a host, a cluster, a database, a driver or an extension against what the reconciler needs of it."""


_ALONE = "No work may run on the machine, and nobody else may use its BMC meanwhile."
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@conformance.command()
@grouped(
    RedfishTarget,
    click.argument("address", metavar="URL"),
    click.option("--ca", type=_FILE, metavar="FILE", help="PEM file of the CA that signed the BMC's certificate."),
    click.option("--insecure", is_flag=True, help="Do not verify the certificate, and allow http://."),
    click.option("--credentials", type=_FILE, metavar="FILE", help='JSON file {"username": ..., "password": ...}.'),
    click.option("--secret", default="bmc", show_default=True, metavar="NAME", help="Name in the secrets file."),
    click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=30.0, show_default=True,
                 metavar="SECONDS", help="How long the BMC may take for an answer."),
    endpoints_option("endpoints.json of a lab: URL is an address of its spec, and its secrets are used."),
)  # fmt: skip
@click.option("--check", "names", multiple=True, metavar="NAME", help="Try this check alone. May be given again.")
@click.option("--allow-writes", is_flag=True, help="Also try what writes, and put it back; it asks for a consent.")
@click.option("--bios", metavar="NAME=VALUE", help="With --allow-writes: a harmless BIOS attribute to stage and drop.")
@click.option("--confirm", default="", metavar="TEXT",
              help="'power SERIAL' or 'write to SERIAL': the consent, off a terminal.")  # fmt: skip
@output_option
def redfish(
    target: RedfishTarget, names: tuple[str, ...], allow_writes: bool, bios: str | None, confirm: str, output: str
) -> int:
    """Check the BMC at URL: each check is named, with the clause or pitfall, and what is done without it.

    It only reads, unless --allow-writes is given. Exit code 7: a check failed. 4: the BMC did not answer.
    """
    if bios is not None and not allow_writes:
        raise UsageError("--bios needs --allow-writes")
    writes = Writes(lambda sentence: _consent(sentence, confirm), _attribute(bios)) if allow_writes else None
    report = check_redfish(target, chosen_checks(names), writes)
    show({"json": as_json, "markdown": as_markdown, "human": human}[output](report), output)
    return exit_code(report)


@conformance.command()
@click.argument("repository", metavar="OWNER/NAME")
@click.option("--pull", type=click.IntRange(min=1), metavar="NUMBER", help="With --allow-writes: one to comment on.")
@click.option("--allow-writes", is_flag=True, help="Also write a branch, and open and close a pull request from it.")
@click.option("--confirm", default="", metavar="TEXT", help="'write to OWNER/NAME': the consent, off a terminal.")
@output_option
def forge(repository: str, pull: int | None, allow_writes: bool, confirm: str, output: str) -> int:
    """Check the driver of a forge on a repository: the one that `comment` would use, with its token.

    RECONCILER_FORGE names the driver of an extension. Exit code 7: a check failed. 4: the forge did not answer.
    """
    if pull is not None and not allow_writes:
        raise UsageError("--pull needs --allow-writes")
    if allow_writes:
        _consent(f"write to {repository}", confirm, "It leaves the branch reconciler/conformance and a closed request.")
    report = check_forge(repository, pull, writes=allow_writes)
    show({"json": as_json, "markdown": as_markdown, "human": human}[output](report), output)
    return exit_code(report)


@conformance.command()
@grouped(
    SshTarget,
    click.option("--user", default="root", show_default=True, help="User to log in as."),
    click.option("--key", type=_FILE, metavar="FILE", help="Private key to log in with."),
    click.option("--secret", default="ssh", show_default=True, metavar="NAME", help="Name in the secrets file."),
    click.option("--ca", type=_FILE, metavar="FILE", help="Public keys of the CAs that sign host keys, one per line."),
    click.option("--insecure", is_flag=True, help="Accept any host key."),
    click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=30.0, show_default=True,
                 metavar="SECONDS", help="How long the host may take for all its facts."),
    endpoints_option("endpoints.json of a lab: HOST is an address of its spec, and its secrets are used."),
)  # fmt: skip
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
@output_option
def ssh(target: SshTarget, hosts: tuple[str, ...], output: str) -> int:
    """Check each HOST over SSH, as its node's facts and commands need it: [NODE=]ADDRESS[:PORT].

    NODE is the name in the host's certificate, where that is not the address. It only reads. Exit code 7: a check
    failed. 4: a host did not answer.
    """
    reports = check_ssh(target, hosts)
    show("".join({"json": as_json, "markdown": as_markdown, "human": human}[output](one) for one in reports), output)
    if any(report.counts[CheckResult.FAIL] for report in reports):
        return ExitCode.PARTLY_FAILED  # a login that was refused among them: the host did answer
    gone = any(report.broken_off or not report.answered for report in reports)
    return ExitCode.INCOMPLETE if gone else ExitCode.DONE


@conformance.command()
@click.argument("where", metavar="URL")
@click.option("--allow-writes", is_flag=True, help="Also make a ledger beside the real one, try it, and take it away.")
@output_option
def ledger(where: str, allow_writes: bool, output: str) -> int:
    """Check the database at URL, or an SQLite file, as the ledger needs it.

    It only reads, unless --allow-writes is given. Exit code 7: a check failed. 4: the database did not answer.
    """
    report = check_database(where, writes=allow_writes)
    show({"json": as_json, "markdown": as_markdown, "human": human}[output](report), output)
    return exit_code(report)


@conformance.command()
@grouped(
    KubernetesTarget,
    click.option("--kubeconfig", type=_FILE, metavar="FILE", help="Default: the one that kubectl finds by itself."),
    click.option("--context", metavar="NAME", help="Context in it. Default: its current one."),
    click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=30.0, show_default=True,
                 metavar="SECONDS", help="How long the API server may take for an answer."),
    click.option("--node", default="", metavar="NAME", help="With --allow-writes: a node that nobody uses."),
    click.option("--pod", default="", metavar="NAMESPACE/NAME",
                 help="With --allow-writes: a pod of yours whose PodDisruptionBudget allows no disruption."),
)  # fmt: skip
@click.option("--allow-writes", is_flag=True, help="Also cordon and uncordon --node, and ask for evictions of --pod.")
@click.option("--confirm", default="", metavar="TEXT", help="'write to NODE': the consent, off a terminal.")
@output_option
def kubernetes(target: KubernetesTarget, allow_writes: bool, confirm: str, output: str) -> int:
    """Check an API server, and the rights of the account, as drains and marks need them.

    It only reads, unless --allow-writes is given. Exit code 7: a check failed. 4: the API server did not answer.
    """
    subjects = " and ".join(filter(None, (target.node, target.pod)))
    if bool(subjects) != allow_writes:
        raise UsageError("--allow-writes and one of --node and --pod go together")
    if target.pod and not all(target.pod.partition("/")):
        raise UsageError(f"--pod {target.pod!r} is no NAMESPACE/NAME")
    if allow_writes:
        _consent(f"write to {subjects}", confirm, "Nothing may run on the node, and a wrong server evicts the pod.")
    report = check_kubernetes(target, writes=allow_writes)
    show({"json": as_json, "markdown": as_markdown, "human": human}[output](report), output)
    return exit_code(report)


@conformance.command()
@spec_options()
@click.argument("channel", metavar="CHANNEL")
@click.option(
    "--receiver",
    metavar="TEMPLATE",
    help="Secret to try it with: ADDRESS is a web server on this machine, TOKEN a secret part of the path.",
)
@click.option("--allow-writes", is_flag=True, help="Also send two messages to the channel itself.")
@click.option("--confirm", default="", metavar="TEXT", help="'send to CHANNEL': the consent, off a terminal.")
@output_option
def notifier(
    request: FleetRequest, channel: str, receiver: str | None, allow_writes: bool, confirm: str, output: str
) -> int:
    """Check what sends the messages of a CHANNEL of the spec: Apprise, or the notifier of an extension.

    With --receiver, such as json://ADDRESS/TOKEN, it sends to a web server on this machine. Nobody gets a message,
    unless --allow-writes is given. Exit code 7: a check failed.
    """
    if allow_writes:
        _consent(f"send to {channel}", confirm, "Whoever reads the channel gets two messages.")
    report = check_channel(workspace_for(request), channel, receiver, writes=allow_writes)
    show({"json": as_json, "markdown": as_markdown, "human": human}[output](report), output)
    return exit_code(report)


@conformance.command()
@spec_options()
@click.option("--ca", type=_FILE, metavar="FILE", help="PEM file of the CA that signed the server's certificate.")
@click.option("--allow-writes", is_flag=True, help="Also have a host key certified, and a second one refused.")
@click.option("--confirm", default="", metavar="TEXT", help=f"'{SENTENCE}': the consent, off a terminal.")
@output_option
def installer(request: FleetRequest, ca: Path | None, allow_writes: bool, confirm: str, output: str) -> int:
    """Check the server of install documents that the Fleet names, or an extension's, against the installer contract.

    It publishes a document for a machine that there is not, and withdraws it: nothing is installed. Stop the service
    first, which listens there. Exit code 7: a check failed.
    """
    if allow_writes:
        _consent(SENTENCE, confirm, "The host CA signs a key for that name, which is thrown away.")
    report = check_installer(workspace_for(request), ca, writes=allow_writes)
    show({"json": as_json, "markdown": as_markdown, "human": human}[output](report), output)
    return exit_code(report)


@conformance.command()
@spec_options()
@click.argument("tracker", metavar="TRACKER")
@click.option("--allow-writes", is_flag=True, help="Also open a ticket, update it, and close it.")
@click.option("--confirm", default="", metavar="TEXT", help="'write to TRACKER': the consent, off a terminal.")
@output_option
def tickets(request: FleetRequest, tracker: str, allow_writes: bool, confirm: str, output: str) -> int:
    """Check a TRACKER of the spec: GitHub, Jira or a web server, by the account that keeps its tickets.

    It only searches, unless --allow-writes is given. Exit code 7: a check failed. 4: the tracker did not answer.
    """
    if allow_writes:
        _consent(f"write to {tracker}", confirm, "It leaves a closed ticket, and whoever watches the tracker is told.")
    report = check_tickets(workspace_for(request), tracker, writes=allow_writes)
    show({"json": as_json, "markdown": as_markdown, "human": human}[output](report), output)
    return exit_code(report)


@conformance.command()
@click.argument("package", metavar="PACKAGE[==VERSION]")
@click.option("--here", is_flag=True, help="Also run the commands of its facts on this machine, as on a node.")
@output_option
def extension(package: str, here: bool, output: str) -> int:
    """Check what an installed package offers: that each extension fits, and what it makes of a broken node's output.

    No Fleet has to name it; its code is imported. Exit code 7: a check failed.
    """
    reports = check_package(package, here=here)
    show("".join({"json": as_json, "markdown": as_markdown, "human": human}[output](one) for one in reports), output)
    failed = any(report.counts[CheckResult.FAIL] for report in reports)
    return ExitCode.PARTLY_FAILED if failed else ExitCode.DONE


def exit_code(report: ConformanceReport) -> ExitCode:
    if not report.answered:
        return ExitCode.INCOMPLETE
    if report.counts[CheckResult.FAIL]:
        return ExitCode.PARTLY_FAILED
    return ExitCode.INCOMPLETE if report.broken_off else ExitCode.DONE


def _attribute(given: str | None) -> tuple[str, AttributeValue] | None:
    """Parse NAME=VALUE; a whole number and true or false are that, anything else is a text."""
    if given is None:
        return None
    name, separator, value = given.partition("=")
    if not name or not separator:
        raise UsageError(f"--bios {given!r} is no NAME=VALUE")
    if value in ("true", "false"):
        return name, value == "true"
    return name, int(value) if value.isascii() and value.isdigit() else value


def _consent(sentence: str, given: str, warning: str = _ALONE) -> None:
    """Have the sentence typed, unless it was given. Raise UsageError or Abort."""
    if given == sentence:
        return
    if given or not sys.stdin.isatty():
        raise UsageError(f"to write, this needs --confirm {sentence!r}" + (f", not {given!r}" if given else ""))
    say(warning, err=True)
    if click.prompt(f"Type '{sentence}' to go on", err=True) != sentence:
        raise click.Abort
