"""reconciler init"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import Common, endpoints_option, gather, ledger_option
from reconciler.cli.terminal import say
from reconciler.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.app.init import Started
    from reconciler.drivers.secrets import Secret, SecretStore
    from reconciler.render.draft.kinds import Row
    from reconciler.render.draft.text import Access


@dataclass(slots=True)
class Given:
    """What was said on the command line, and is asked for otherwise."""

    nodes: Path | None
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


def _file(told: str) -> dict[str, Any]:
    return {"type": click.Path(path_type=Path, exists=True, dir_okay=False), "metavar": "FILE", "help": told}


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    wrapped: Any = gather(function, lambda given: Given(**{name: given.pop(name) for name in Given.__slots__}))
    for option in reversed((
        click.option("--nodes", **_file("CSV file of the nodes: name,bmc,host, and pool, rack or domains.LABEL.")),
        click.option("--name", metavar="RANGE", help="In place of a CSV file: their names, like gpu-a[001-008]."),
        click.option("--bmc", metavar="RANGE", help="With --name: their BMCs, like https://10.20.0.[11-18]."),
        click.option("--host", metavar="RANGE", help="With --name: their hosts, like 10.20.1.[11-18]."),
        click.option("--fleet", metavar="NAME", help="Name of the fleet. Default: the folder that DIR is in."),
        click.option("--bmc-credentials", **_file('JSON file {"username": ..., "password": ...} for BMCs.')),
        click.option("--bmc-ca", **_file("PEM file of the CA that signed the BMCs' certificates.")),
        click.option("--bmc-insecure", is_flag=True, help="Don't verify certificates of BMCs; every report says so."),
        click.option("--ssh-user", default="root", show_default=True, help="User to log in as."),
        click.option("--ssh-key", **_file("Private key of that user, without a passphrase.")),
        click.option("--host-ca", **_file("Public key of the CA that signs the SSH keys of hosts.")),
        click.option("--host-insecure", is_flag=True, help="Accept any SSH host key; every report says so."),
        click.option("--kubeconfig", **_file("Of the Kubernetes cluster that the nodes are in.")),
        click.option("--no-cluster", is_flag=True, help="The nodes are in no cluster."),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: its current one."),
    )):  # fmt: skip
        wrapped = option(wrapped)
    return cast("Callable[..., Any]", wrapped)


@click.command()
@click.argument(
    "directory", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=Path("fleet-spec")
)
@_options
@click.option("--bios", multiple=True, metavar="NAME", help="Manage this BIOS attribute, in place of the usual few.")
@click.option("--service", multiple=True, metavar="NAME", help="Manage this systemd unit, beside the usual ones.")
@click.option("--sysctl", multiple=True, metavar="NAME", help="Manage this kernel parameter, beside the usual ones.")
@ledger_option("Ledger that the nodes are vouched for in: that of later runs. Default: SQLite in the state directory.")
@endpoints_option()
def init(
    given: Given, directory: Path, bios: tuple[str, ...], service: tuple[str, ...], sysctl: tuple[str, ...],
    ledger: str | None, endpoints: Path | None,
) -> int:  # fmt: skip
    """Write the spec of a fleet that has none: read what its nodes are, and ask for just that.

    The spec plans nothing until somebody changes a line. Nodes that serve are vouched for in the ledger; those that are
    ill, out of service or differ in what can't be said are left alone. Nothing is done to any node, and no file is
    overwritten.
    """
    from reconciler.app.init import check_free, first_look, record, start, write_spec
    from reconciler.app.session import Session
    from reconciler.render.draft.survey import Asked
    from reconciler.spec.schema import write_schemas

    check_free(directory)
    rows = _nodes(given)
    access = _access(given, rows, lab=endpoints is not None)
    asked = Asked(bios, service, sysctl)
    session = Session(Common(directory, None, "human", (), (), ledger, endpoints))
    secrets = None if endpoints is not None else _secrets(given, rows, access)
    if secrets is not None:
        session.secrets = secrets.store()
    session.fleet = first_look(_name(given, directory), rows, access, asked, str(directory))
    seen = session.observe()
    with session.ledger() as book:
        made = start(session, book, rows, access, asked, seen)
        if secrets is not None:  # not before they were seen to be right: what is there is not changed by a next try
            secrets.write()
        waived = record(session, book, made)
        paths = write_spec(directory, made.texts)
    schemas = directory.parent / "schemas"
    if not schemas.exists():
        write_schemas(schemas)
        paths.append(schemas)
    _tell(made, directory, paths, waived)
    return ExitCode.INCOMPLETE if made.draft.unread else ExitCode.DONE


def _ask(flag: str, question: str, default: str | None = None, *, hidden: bool = False) -> str:
    if not sys.stdin.isatty():
        raise UsageError(f"off a terminal, init needs {flag}: {question}")
    return str(click.prompt(question, default=default, hide_input=hidden, err=True))


def _nodes(given: Given) -> Mapping[str, Row]:
    """Of a CSV file, or of ranges."""
    from reconciler.app.init import read_rows, rows_in_ranges

    if given.nodes is not None and given.name is not None:
        raise UsageError("--nodes and --name exclude each other")
    named = given.name
    if given.nodes is None and named is None:
        named = _ask(
            "--nodes, or --name, --bmc and --host", "CSV file of the nodes, or their names like gpu-a[001-008]"
        )
    if given.nodes is not None or (named is not None and Path(named).is_file()):
        return read_rows(given.nodes or Path(str(named)))
    bmcs = given.bmc or _ask("--bmc", "their BMCs, like https://10.20.0.[11-18]")
    hosts = given.host or _ask("--host", "their hosts, like 10.20.1.[11-18]")
    return rows_in_ranges(str(named), bmcs, hosts)


def _name(given: Given, directory: Path) -> str:
    found = given.fleet or re.sub(r"[^a-z0-9]+", "-", directory.resolve().parent.name.lower()).strip("-")
    return found or "fleet"


def _access(given: Given, rows: Mapping[str, Row], *, lab: bool) -> Access:
    """How the fleet is reached. Nothing is trusted silently: a CA, or a flag that says that none is asked for."""
    from reconciler.render.draft.text import Access

    bmc, ssh = any(row.bmc for row in rows.values()), any(row.host for row in rows.values())
    bmc_ca = (
        _authority(given.bmc_ca, given.bmc_insecure, "--bmc-ca", "the CA that signed the BMCs' certificates")
        if bmc
        else None
    )
    host_ca = None
    if ssh:
        shown = None if given.host_ca or given.host_insecure or lab else _host_shows(rows)
        host_ca = _authority(
            given.host_ca, given.host_insecure, "--host-ca", "the CA that signs the keys of hosts", shown
        )
    if given.kubeconfig is not None and given.no_cluster:
        raise UsageError("--kubeconfig and --no-cluster exclude each other")
    if given.kubeconfig is None and not given.no_cluster:
        answer = _ask("--kubeconfig or --no-cluster", "kubeconfig of the cluster (none: no cluster)", "none")
        if answer != "none":
            given.kubeconfig = Path(answer).expanduser()
    return Access(given.ssh_user, bmc, ssh, bmc_ca, host_ca, "main" if given.kubeconfig else None, given.context)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a machine shows of itself: in words, and whom the spec would name to believe it; "" for nobody."""

    said: str
    authority: str = ""


def _host_shows(rows: Mapping[str, Row]) -> _Shown | None:
    """On a terminal alone, where somebody can compare it."""
    from reconciler.app.session import run_async
    from reconciler.drivers.ssh.host_key_scan import presented
    from reconciler.model.addresses import SSH_PORT, split_authority

    row = next((row for row in rows.values() if row.host), None)
    if row is None or row.host is None or not sys.stdin.isatty():
        return None
    found = run_async(presented(*split_authority(row.host, SSH_PORT)))
    if found is None:
        return _Shown(f"{row.name} shows no SSH host key")
    if not found.authority:
        return _Shown(f"{row.name} shows the host key {found.fingerprint}, which no CA has signed")
    return _Shown(f"{row.name} shows a host key signed by the CA {found.fingerprint}", found.authority)


def _authority(file: Path | None, insecure: bool, flag: str, what: str, shown: _Shown | None = None) -> str | None:
    if file is not None and insecure:
        raise UsageError(f"{flag} and {flag.rpartition('-')[0]}-insecure exclude each other")
    if insecure:
        return None
    if file is None and shown is not None:
        say(f"{shown.said}; compare that before you trust it", err=True)
        if shown.authority and click.confirm("Trust that CA?", err=True):
            return shown.authority
    if file is None:
        answer = _ask(f"{flag} or {flag.rpartition('-')[0]}-insecure", f"file of {what} (insecure: verify nothing)")
        if answer == "insecure":
            return None
        file = Path(answer).expanduser()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None


# --- secrets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Secrets:
    """A file that is not written yet. `typed`: credentials of the BMCs, as JSON, for a file of their own."""

    path: Path
    sources: Mapping[str, Mapping[str, Any]]
    typed: Secret | None

    def store(self) -> SecretStore:
        from reconciler.drivers.secrets import SecretsFile, SecretSource, SecretStore

        contents = SecretsFile(secrets={name: SecretSource(**source) for name, source in self.sources.items()})
        return SecretStore(contents, self.path, {} if self.typed is None else {"bmc": self.typed})

    def write(self) -> None:
        from reconciler.strict_yaml.edit import inline

        if self.typed is not None:
            _write_private(Path(self.sources["bmc"]["file"]), self.typed.reveal())
        lines = [
            "# What the names in the spec stand for, and where it may be sent. Keep this file out of the repository.",
            "secrets:",
            *(f"  {name}: {inline(source)}" for name, source in self.sources.items()),
            "# Public keys that images are signed with: `release: RWQ...`, as in minisign.pub",
            "keys: {}",
        ]
        _write_private(self.path, "\n".join(lines) + "\n")


def _secrets(given: Given, rows: Mapping[str, Row], access: Access) -> _Secrets | None:
    """What the names in the spec stand for; None where a file says it already."""
    from reconciler.app.init import networks
    from reconciler.drivers.secrets import default_path

    path = default_path()
    bmcs = [row.bmc for row in rows.values() if row.bmc]
    hosts = [row.host for row in rows.values() if row.host]
    if path.exists():
        _check_secrets(path, given, access, bmcs, hosts)
        return None
    sources: dict[str, dict[str, Any]] = {}
    typed = None
    if access.bmc:
        file = given.bmc_credentials or path.parent / "bmc.json"
        if given.bmc_credentials is None:
            typed = _typed(file)
        sources["bmc"] = {"file": str(file.resolve()), "allow": tuple(networks(bmcs))}
    if access.ssh:
        key = given.ssh_key or Path(
            _ask("--ssh-key", f"private key of {given.ssh_user} on the hosts", "~/.ssh/id_ed25519")
        )
        sources["ssh"] = {"file": str(key.expanduser().resolve()), "allow": tuple(networks(hosts))}
    if given.kubeconfig is not None and access.cluster:
        sources["kubeconfig"] = {"file": str(given.kubeconfig.resolve())}
    return _Secrets(path, sources, typed)


def _check_secrets(path: Path, given: Given, access: Access, bmcs: Sequence[str], hosts: Sequence[str]) -> None:
    """UsageError unless the file has what is needed, and does not say otherwise than the command line.

    Else another fleet's cluster would be read, and its nodes be vouched for.
    """
    from reconciler.drivers.secrets import SecretError, SecretStore

    store = SecretStore.load(path)
    try:
        for name, needed, flag, file in (
            ("bmc", access.bmc, "--bmc-credentials", given.bmc_credentials),
            ("ssh", access.ssh, "--ssh-key", given.ssh_key),
            ("kubeconfig", access.cluster, "--kubeconfig", given.kubeconfig),
        ):
            place = store.place(name) if needed and file is not None else None
            if needed and file is not None and (place is None or place.resolve() != file.resolve()):
                raise UsageError(
                    f"{flag} {file} is not what {path} says of {name!r} ({place or 'no file'}): leave {flag} out to "
                    "use that, or let RECONCILER_SECRETS name a file that is not there yet, for this fleet alone"
                )
        if access.bmc:
            store.credentials("bmc", bmcs[0])
        if access.ssh:
            store.resolve("ssh", hosts[0])
        if access.cluster:
            store.file("kubeconfig")
    except SecretError as error:
        raise UsageError(f"{error}; {path} is there already, and init does not change it") from None


def _typed(path: Path) -> Secret:
    """What `path` shall hold."""
    from reconciler.drivers.secrets import Secret

    if path.exists():
        raise UsageError(
            f"{path} is there already, and init overwrites nothing: give --bmc-credentials {path}, or another file"
        )
    user = _ask("--bmc-credentials", "user of the BMCs")
    password = _ask("--bmc-credentials", "password of the BMCs", hidden=True)
    return Secret(json.dumps({"username": user, "password": password}) + "\n")


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and init overwrites nothing") from None
    say(f"written: {path} (mode 600)", err=True)


def _tell(made: Started, directory: Path, paths: list[Path], waived: int) -> None:
    from reconciler.render.draft.text import summary
    from reconciler.render.text import count, plain

    for path in paths:
        say(path)
    for line in summary(made.draft):
        say(plain(line, 400), err=True)
    if waived:
        say(f"{count(waived, 'node')} in service vouched for in the ledger: adopted certificates", err=True)
    for sentence in made.fleet.settings.insecure:
        say(f"INSECURE: {sentence}", err=True)
    say(f"It plans nothing. Next: read it, then git add {directory} and reconciler plan {directory}", err=True)
