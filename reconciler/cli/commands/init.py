"""reconciler init"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from reconciler.app.init import (
    Initialized,
    check_free,
    first_look,
    in_range,
    initialize,
    nodes_of,
    read_rows,
    rows_in_ranges,
)
from reconciler.app.init_access import (
    CA_CHECKS,
    PresentedKey,
    SecretFiles,
    SecretPrompts,
    prepare_secrets,
    presented_host_key,
)
from reconciler.app.inventory.sources import parse_source, read_inventory
from reconciler.app.ports import FleetRequest
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.frontend import workspace_for
from reconciler.cli.options import endpoints_option, grouped, ledger_option
from reconciler.cli.terminal import say
from reconciler.model.errors import UsageError
from reconciler.render.draft.kinds import Row
from reconciler.render.draft.survey import Asked
from reconciler.render.draft.text import Access, summary
from reconciler.render.text import count, plain

T = TypeVar("T")


@dataclass(slots=True)
class InitOptions:
    """The inputs named on the command line; `init` asks for the rest on a terminal."""

    nodes: Path | None
    source: str | None
    fields: tuple[str, ...]
    name: str | None
    bmc: str | None
    host: str | None
    fleet: str | None
    bmc_credentials: Path | None
    bmc_ca: Path | None
    bmc_insecure: bool
    ssh_user: str
    ssh_key: Path | None
    host_ca: Path | None
    host_insecure: bool
    kubeconfig: Path | None
    no_cluster: bool
    context: str | None


def _file(help_text: str) -> dict[str, Any]:
    return {"type": click.Path(path_type=Path, exists=True, dir_okay=False), "metavar": "FILE", "help": help_text}


_OPTIONS = (
    click.option("--nodes", **_file("CSV file of nodes: columns name, bmc, host, and pool, rack or domains.LABEL.")),
    click.option("--from", "source", metavar="KIND:FILE",
                 help="Inventory of the nodes, in place of a CSV file. KIND: ansible, netbox, ironic, metal3, "
                 "terraform or maas. For netbox, a URL that lists devices, too, with a token in NETBOX_TOKEN."),
    click.option("--field", "fields", multiple=True, metavar="COLUMN=PATH",
                 help="With --from: where a column is found in its objects, like bmc=custom_fields.bmc_url."),
    click.option("--name", metavar="RANGE", help="Names of the nodes, in place of a CSV file: gpu-a[001-008]."),
    click.option("--bmc", metavar="RANGE", help="With --name: addresses of the BMCs: https://10.20.0.[11-18]."),
    click.option("--host", metavar="RANGE", help="With --name: addresses of the hosts: 10.20.1.[11-18]."),
    click.option("--fleet", metavar="NAME", help="Name of the fleet. Default: the folder that contains DIR."),
    click.option("--bmc-credentials", **_file('JSON file {"username": ..., "password": ...} for the BMCs.')),
    click.option("--bmc-ca", **_file("PEM file of the CA that signed the BMCs' certificates.")),
    click.option("--bmc-insecure", is_flag=True, help="Do not verify certificates of BMCs. Every report says so."),
    click.option("--ssh-user", default="root", show_default=True, help="User to log in as on the hosts."),
    click.option("--ssh-key", **_file("SSH private key of that user, without a passphrase.")),
    click.option("--host-ca", **_file("Public key of the CA that signs the SSH keys of hosts.")),
    click.option("--host-insecure", is_flag=True, help="Accept any SSH host key. Every report says so."),
    click.option("--kubeconfig", **_file("kubeconfig of the Kubernetes cluster that the nodes belong to.")),
    click.option("--no-cluster", is_flag=True, help="The nodes belong to no cluster."),
    click.option("--context", metavar="NAME", help="Context in the kubeconfig. Default: the current one."),
)  # fmt: skip


@click.command()
@grouped(InitOptions, *_OPTIONS)
@grouped(
    Asked,
    click.option("--bios", multiple=True, metavar="NAME", help="Manage this BIOS attribute. Default: the usual few."),
    click.option("--service", "services", multiple=True, metavar="NAME", help="Also manage this systemd unit."),
    click.option(
        "--sysctl",
        "sysctls",
        multiple=True,
        metavar="NAME",
        help="Also manage this kernel parameter.",
    ),
)
@grouped(
    FleetRequest,
    click.argument(
        "spec", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec")
    ),
    ledger_option("Ledger for the certificates: that of later runs. Default: SQLite in the state directory."),
    endpoints_option(),
)
def init(options: InitOptions, asked: Asked, request: FleetRequest) -> int:
    """Write the spec of a fleet that has none: read its nodes, and declare exactly what they have.

    The plan for the new spec is empty until somebody changes a line. Nodes in service get adopted certificates in the
    ledger, without tests. Nodes that are ill, out of service or unlike their kind are left alone. No node is changed,
    and no file is overwritten.
    """
    directory = request.spec
    check_free(directory)
    rows = _nodes(options)
    in_lab = request.endpoints is not None
    access = _access(options, rows, lab=in_lab)
    workspace = workspace_for(request)
    files = SecretFiles(options.bmc_credentials, options.ssh_key, options.kubeconfig)
    prompts = SecretPrompts(_bmc_login, lambda: _ssh_key(options.ssh_user))
    secrets = None if in_lab else prepare_secrets(rows, access, files, prompts)
    workspace.fleet = first_look(_fleet_name(options, directory), rows, access, asked, str(directory))
    made = initialize(workspace, rows, access, asked, secrets)
    _print(made, directory)
    return ExitCode.INCOMPLETE if made.spec.draft.unread else ExitCode.DONE


def _ask(flag: str, question: str, default: str | None = None, *, hidden: bool = False) -> str:
    return _ask_for(str, flag, question, default, hidden=hidden)


def _ask_for(
    read: Callable[[str], T], flag: str, question: str, default: str | None = None, *, hidden: bool = False
) -> T:
    """Ask until `read` takes the answer; it raises UsageError, which is told, for one that is wrong."""
    if not sys.stdin.isatty():
        raise UsageError(f"off a terminal, init needs {flag}: {question}")

    def checked(answer: str) -> T:
        try:
            return read(answer)
        except UsageError as error:
            raise click.UsageError(str(error)) from None

    found: T = click.prompt(question, default=default, hide_input=hidden, err=True, value_proc=checked)
    return found


def _nodes(options: InitOptions) -> Mapping[str, Row]:
    """Read the nodes from a CSV file, an inventory, or ranges."""
    if options.nodes is not None and options.name is not None:
        raise UsageError("--nodes and --name exclude each other")
    if options.source is not None:
        if options.nodes is not None or options.name is not None:
            raise UsageError("--from excludes --nodes and --name")
        source = parse_source(options.source, options.fields)
        return nodes_of(read_inventory(source), source.place)
    if options.fields:
        raise UsageError("--field is for --from")
    if options.nodes is not None:
        return read_rows(options.nodes)
    flag = "--nodes, or --name, --bmc and --host"
    named = options.name or _ask_for(_file_or_range, flag, "CSV file of the nodes, or their names like gpu-a[001-008]")
    if Path(named).is_file():
        return read_rows(Path(named))
    many = len(in_range(named, "name"))
    bmcs = options.bmc or _ask_for(
        lambda answer: answer if in_range(answer, "bmc", many) else "",
        "--bmc",
        "their BMCs, like https://10.20.0.[11-18]",
    )
    if options.host:
        return rows_in_ranges(named, bmcs, options.host)
    return _ask_for(lambda answer: rows_in_ranges(named, bmcs, answer), "--host", "their hosts, like 10.20.1.[11-18]")


def _file_or_range(answer: str) -> str:
    """Return the answer when it can be read. Raise UsageError."""
    if Path(answer).is_file():
        read_rows(Path(answer))
    elif answer.endswith(".csv") or "/" in answer:
        raise UsageError(f"there is no file {answer}")
    else:
        in_range(answer, "name")
    return answer


def _fleet_name(options: InitOptions, directory: Path) -> str:
    found = options.fleet or re.sub(r"[^a-z0-9]+", "-", directory.resolve().parent.name.lower()).strip("-")
    return found or "fleet"


def _access(options: InitOptions, rows: Mapping[str, Row], *, lab: bool) -> Access:
    """Return how the fleet is reached. Every authority needs a CA, or a flag that turns verification off."""
    bmc, ssh = any(row.bmc for row in rows.values()), any(row.host for row in rows.values())
    bmc_ca = (
        _authority(options.bmc_ca, options.bmc_insecure, "--bmc-ca", "the CA that signed the BMCs' certificates")
        if bmc
        else None
    )
    host_ca = None
    if ssh:
        presented = None if options.host_ca or options.host_insecure or lab else _presented(rows)
        host_ca = _authority(
            options.host_ca, options.host_insecure, "--host-ca", "the CA that signs the keys of hosts", presented
        )
    if options.kubeconfig is not None and options.no_cluster:
        raise UsageError("--kubeconfig and --no-cluster exclude each other")
    if options.kubeconfig is None and not options.no_cluster:
        question = "kubeconfig of the cluster (none: no cluster)"
        options.kubeconfig = _ask_for(_kubeconfig, "--kubeconfig or --no-cluster", question, "none")
    return Access(options.ssh_user, bmc, ssh, bmc_ca, host_ca, "main" if options.kubeconfig else None, options.context)


def _presented(rows: Mapping[str, Row]) -> PresentedKey | None:
    """Return the host key of a node on a terminal alone, where somebody can compare it."""
    return presented_host_key(rows) if sys.stdin.isatty() else None


def _authority(
    file: Path | None, insecure: bool, flag: str, what: str, presented: PresentedKey | None = None
) -> str | None:
    if file is not None and insecure:
        raise UsageError(f"{flag} and {flag.rpartition('-')[0]}-insecure exclude each other")
    if insecure:
        return None
    if file is None and presented is not None:
        say(f"{presented.text}; compare it with a trusted source first", err=True)
        if presented.authority and click.confirm("Trust that CA?", err=True):
            return presented.authority
    if file is None:
        flags = f"{flag} or {flag.rpartition('-')[0]}-insecure"
        read = partial(_text_unless_insecure, flag)
        return _ask_for(read, flags, f"file of {what} (insecure: verify nothing)")
    return _text(flag, file)


def _text_unless_insecure(flag: str, answer: str) -> str | None:
    return None if answer == "insecure" else _text(flag, Path(answer).expanduser())


def _text(flag: str, file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
        CA_CHECKS[flag](text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    except ValueError as error:
        raise UsageError(f"{file}, as {flag}: {error}") from None
    return text


def _kubeconfig(answer: str) -> Path | None:
    return None if answer == "none" else _existing(answer)


def _existing(answer: str) -> Path:
    path = Path(answer).expanduser()
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    return path


def _bmc_login() -> tuple[str, str]:
    user = _ask("--bmc-credentials", "user of the BMCs")
    return user, _ask("--bmc-credentials", "password of the BMCs", hidden=True)


def _ssh_key(user: str) -> Path:
    return _ask_for(_existing, "--ssh-key", f"private key of {user} on the hosts", "~/.ssh/id_ed25519")


def _print(made: Initialized, directory: Path) -> None:
    for path in made.paths:
        say(path)
    for line in summary(made.spec.draft):
        say(plain(line, 400), err=True)
    if made.waived:
        say(f"{count(made.waived, 'node')} in service: tests waived, adopted certificates in the ledger", err=True)
    for sentence in made.spec.fleet.settings.insecure:
        say(f"INSECURE: {sentence}", err=True)
    say(f"It plans nothing. Next: read it, then git add {directory} and reconciler plan {directory}", err=True)
