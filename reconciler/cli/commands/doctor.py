"""reconciler doctor"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import click

from reconciler.app.session import Session
from reconciler.cli.exit_codes import ExitCode
from reconciler.cli.options import Common, fleet_options
from reconciler.cli.terminal import say, show
from reconciler.model.errors import ReconcilerError, SpecError, UsageError

OLDEST_KUBECTL = (1, 20)


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy`: what to do; "" when there is nothing to do."""

    check: str
    ok: bool
    detail: str
    remedy: str = ""


@click.command()
@fleet_options(rev=True)
@click.option("--offline", is_flag=True, help="Contact no node.")
def doctor(common: Common, offline: bool) -> int:
    """Check programs, spec, secrets, ledger and reachability, and say what to do about each problem."""
    from reconciler.render.text import markdown, plain

    findings = []
    for finding in examine(Session(common), offline=offline):
        findings.append(finding)
        if common.output == "human":
            say(f"{'ok  ' if finding.ok else 'FAIL'} {finding.check}: {plain(finding.detail, 2000)}")
            if finding.remedy:
                say(f"     -> {finding.remedy}")
    if common.output == "json":
        show(json.dumps([asdict(finding) for finding in findings], indent=1) + "\n", common.output)
    elif common.output == "markdown":
        for f in findings:
            remedy = f" - {markdown(f.remedy, 400)}" if f.remedy else ""
            say(f"- {'✅' if f.ok else '🔴'} **{f.check}**: {markdown(f.detail, 400)}{remedy}")
    bad = [finding for finding in findings if not finding.ok]
    if not bad:
        return ExitCode.DONE
    if any(finding.check == "spec" for finding in bad):
        return ExitCode.SPEC_INVALID
    return ExitCode.INCOMPLETE if all(f.check.startswith("reach") for f in bad) else ExitCode.USAGE


def examine(session: Session, *, offline: bool) -> Iterator[Finding]:
    """Findings in the order in which things are needed; what depends on a failed one is left out."""
    yield _python()
    yield _program("git", ("git", "--version"), "apt-get install git; without it the commit is not in any report")
    try:
        fleet = session.fleet
    except SpecError as error:
        first = error.diagnostics[0]
        yield Finding("spec", False, str(first), f"reconciler validate {session.common.spec} shows all problems")
        return
    except UsageError as error:
        yield Finding("spec", False, str(error), "reconciler doctor SPEC")
        return
    yield Finding("spec", True, f"{len(fleet.nodes)} nodes, {session.common.spec}")
    if fleet.settings.cluster is not None:
        yield _kubectl()
    for sentence in fleet.settings.insecure:
        yield Finding("trust", True, sentence, "verify it: name a CA in the spec")
    secrets = list(_secrets(session))
    yield from secrets
    yield _tried("ledger", lambda: _ledger(session), "point --ledger or RECONCILER_LEDGER at a place you may write")
    yield from _stops(session)
    if not offline and all(finding.ok for finding in secrets):
        yield from _reachability(session)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), version)


def _program(name: str, argv: tuple[str, ...], remedy: str) -> Finding:
    from reconciler.drivers.programs import ask

    ok, text = ask(*argv)
    return Finding(name, ok, text.split("\n")[0] or "not on the PATH", "" if ok else remedy)


def _kubectl() -> Finding:
    from reconciler.drivers.programs import ask

    ok, text = ask("kubectl", "version", "--client", "-o", "json")
    if not ok:
        remedy = "apt-get install kubernetes-client, or see kubernetes.io"
        return Finding("kubectl", False, text.split("\n")[0] or "not on the PATH", remedy)
    try:
        version = json.loads(text)["clientVersion"]
        found = int(version["major"]), int("".join(filter(str.isdigit, version["minor"])))
    except (ValueError, KeyError, TypeError):
        return Finding("kubectl", False, f"unreadable version: {text[:80]!r}", "install a kubectl of 1.20 or newer")
    fresh = found >= OLDEST_KUBECTL
    return Finding("kubectl", fresh, version["gitVersion"], "" if fresh else "1.20 is the oldest that works")


def _secrets(session: Session) -> Iterator[Finding]:
    """Each name that the spec uses, resolved for the address of the first node that needs it."""
    fleet = session.fleet
    settings = fleet.settings
    from reconciler.drivers.secrets import default_path

    where = f"see README, Secrets and trust; the file is {default_path()}, and a lab's is RECONCILER_ENDPOINTS"
    names, _ = session.selection
    bmc = next((fleet.nodes[n].endpoints.bmc for n in names if fleet.nodes[n].endpoints.bmc), None)
    host = next((fleet.nodes[n].endpoints.host for n in names if fleet.nodes[n].endpoints.host), None)
    if settings.bmc_credentials and bmc:
        address = bmc if session.overlay is None else session.overlay.bmc(bmc).url
        name = settings.bmc_credentials
        yield _tried(f"secret {name}", lambda: (session.secrets.credentials(name, address), "for BMCs")[1], where)
    if settings.ssh_credentials and host:
        target = None if session.overlay is None else session.overlay.ssh(host)
        to = host if target is None else f"{target.host}:{target.port}"
        key = settings.ssh_credentials
        yield _tried(f"secret {key}", lambda: (session.secrets.resolve(key, to), "for SSH")[1], where)
    if settings.cluster and settings.cluster.kubeconfig and session.overlay is None:
        kubeconfig = settings.cluster.kubeconfig
        yield _tried(f"secret {kubeconfig}", lambda: str(session.secrets.file(kubeconfig)), where)
    keys = {n.profile.image.key for n in fleet.nodes.values() if n.profile.image is not None and n.profile.image.key}
    for key_name in sorted(keys):
        known = session.secrets.public_key(key_name) is not None
        remedy = (
            "" if known else f"add its public key under `keys:` in {default_path()}; until then no image is trusted"
        )
        yield Finding(f"key {key_name}", known, "known" if known else "unknown", remedy)
    for (image, version), verified in session.signatures.items():
        if verified is False:
            yield Finding("signature", False, f"image {image} {version} is not signed by its key", "sign it again")


def _ledger(session: Session) -> str:
    with session.ledger() as ledger:
        return f"{ledger.name}, id {ledger.id}"  # not as it was given: a URL may hold a password


def _stops(session: Session) -> Iterator[Finding]:
    """What keeps the whole fleet from going on. It is meant to; nobody should have to guess it."""
    from reconciler.planner.node.holds import braked, by_subject, stopped

    try:
        with session.ledger() as ledger:
            holds = by_subject((), ledger.holds())
    except ReconcilerError:
        return  # told already
    now = session.clock.now()
    for found in (stopped(holds, now), braked(holds, now)):
        if found is not None:
            yield Finding("fleet", True, found.detail, "reconciler resume, once it is known why")


def _tried(check: str, attempt: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(check, True, attempt())
    except ReconcilerError as error:
        return Finding(check, False, str(error), remedy)


_REMEDIES = {
    "unreachable": "check cabling, VLAN, firewall and the address in the spec",
    "auth": "check the secret; after a change of password every caller of that BMC must stop first, or it locks",
    "timeout": "it accepts connections and does not answer: a BMC reset may help",
    "malformed": "it answers nonsense: check that the address is a BMC's, and its firmware",
    "unsupported": "it lacks what we need: see the detail",
}


def _reachability(session: Session) -> Iterator[Finding]:
    """One pass, told by source and reason: forty dark BMCs are one problem."""
    from reconciler.model.observed import Silent
    from reconciler.model.vocab import UnknownReason
    from reconciler.render.text import fold

    observation = session.observe()
    names, _ = session.selection
    for source in ("redfish", "ssh", "kubernetes"):
        silent: dict[tuple[str, str], list[str]] = {}
        for name in names:
            seen = observation.nodes[name]
            reading = {"redfish": seen.hot, "ssh": seen.host, "kubernetes": seen.member}[source]
            if isinstance(reading, Silent) and reading.reason not in (UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED):
                detail = reading.detail if source == "kubernetes" else ""
                silent.setdefault((reading.reason.value, detail), []).append(name)
        dark = sum(map(len, silent.values()))
        yield Finding(f"reach {source}", not silent, f"{len(names) - dark} of {len(names)} nodes answer")
        for (reason, detail), nodes in silent.items():
            told = f"{fold(nodes)} ({len(nodes)}): {reason}" + (f", {detail}" if detail else "")
            yield Finding(f"reach {source}", False, told, _REMEDIES.get(reason, ""))
