"""The `doctor` use case: check programs, spec, secrets, ledger, reachability, and what BMCs can write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from reconciler.app.delivery import chats, node_events
from reconciler.app.doctor_engine import examine_engine
from reconciler.app.doctor_programs import Finding, helm, kubectl, program, python
from reconciler.app.extensions import examine_extensions
from reconciler.app.forge_job import spec_forge
from reconciler.app.host_secrets import SecretUse, secret_uses
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.drivers.redfish.factory_logins import factory_login
from reconciler.drivers.secrets import SecretStore, default_path
from reconciler.drivers.tickets.trackers import client_of
from reconciler.model.access import SlurmAccess
from reconciler.model.boot_ways import choose, passed_over
from reconciler.model.desired import Desired
from reconciler.model.drift import ACTIONABLE
from reconciler.model.errors import DriverError, Failure, ReconcilerError, SpecError, UsageError
from reconciler.model.forge import SpecForge
from reconciler.model.inventory import InventoryPolicy
from reconciler.model.notices import Channel
from reconciler.model.observed import Answered, ClusterState, Observation, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.tickets import Tracker
from reconciler.model.vocab import BootWay, Concern, NodeState, UnknownReason
from reconciler.planner.node.actions import impossible
from reconciler.planner.node.holds import braked, by_subject, stopped
from reconciler.planner.node.possible import IMAGE
from reconciler.render.text import fold

ROLE = "deploy/kubernetes/rbac.yaml"
CHECKPOINT_ROLE = "deploy/kubernetes/rbac-checkpoint.yaml"
ADJUST_ROLE = "deploy/kubernetes/rbac-adjust.yaml"


def examine(workspace: Workspace, *, offline: bool) -> Iterator[Finding]:
    """Yield findings in the order in which things are needed. Checks that depend on a failed one are left out."""
    yield python()
    yield program("git", ("git", "--version"), "apt-get install git; without it the commit is not in any report")
    try:
        fleet = workspace.fleet
    except SpecError as error:
        first = error.diagnostics[0]
        yield Finding("spec", False, str(first), f"reconciler validate {workspace.request.spec} shows all problems")
        return
    except UsageError as error:
        yield Finding("spec", False, str(error), "reconciler doctor SPEC")
        return
    yield Finding("spec", True, f"{len(fleet.nodes)} nodes, {workspace.request.spec}")
    cluster = fleet.settings.cluster
    if cluster is not None and cluster.kubernetes:
        yield kubectl()
    if fleet.settings.releases:
        yield helm()
    for sentence in fleet.settings.insecure:
        yield Finding("trust", True, sentence, "verify it: name a CA in the spec")
    yield from (Finding(*one) for one in examine_extensions(fleet))
    secrets = list(_secrets(workspace))
    yield from secrets
    yield from _factory_logins(workspace)
    place = "point --ledger or RECONCILER_LEDGER at a place you may write"
    ledger = _tried("ledger", lambda: _ledger(workspace), place)
    yield ledger
    yield from _stops(workspace)
    if not offline and workspace.engine.access is not None:
        yield from examine_engine(workspace)
    if not offline and all(finding.ok for finding in secrets):
        if ledger.ok:
            yield from _machines(workspace)
        else:
            yield Finding("reach nodes", False, "not tried: the ledger knows which host keys are revoked")
        if cluster is not None and cluster.kubernetes:
            yield from _rights(workspace)
            yield _deprecated(workspace)
        if cluster is not None and cluster.slurm is not None:
            yield _slurm(workspace, cluster.slurm)


def _rights(workspace: Workspace) -> Iterator[Finding]:
    """Yield the rights in the cluster that are missing: without them a drain fails on a node that is marked already."""
    from reconciler.drivers.kube.rights import QUEUE_RIGHTS, RIGHTS, SURGE_RIGHTS, in_words

    try:
        missing = workspace.missing_rights()
    except DriverError as error:
        yield Finding("reach kubernetes", False, f"which rights this account has is not known: {error}")
        return
    for right in missing:
        adjusts = right in SURGE_RIGHTS or right in QUEUE_RIGHTS
        file = ADJUST_ROLE if adjusts else ROLE if right in RIGHTS or right.group else CHECKPOINT_ROLE
        yield Finding("rights kubernetes", False, f"this account may not {right}", f"kubectl apply -f {file}")
    if not missing:
        yield Finding("rights kubernetes", True, f"may {'; '.join(in_words(workspace.wanted_rights))}")


def _deprecated(workspace: Workspace) -> Finding:
    """Return which APIs are in use that an upgrade of the cluster takes away. Not to know that stops nothing."""
    name = "deprecated kubernetes"
    try:
        asked = workspace.ask_cluster(lambda cluster: cluster.deprecated_apis())
    except DriverError as error:
        grant = ": grant `get` of the nonResourceURL /metrics" if error.kind is Failure.AUTH else ""
        return Finding(name, True, f"whether deprecated APIs are in use is not known: {error}{grant}")
    if not asked:
        return Finding(name, True, "nobody has asked this API server for an API that a release takes away")
    listed = ", ".join(f"{one.name} (gone with {one.removed})" for one in asked)
    return Finding(name, True, f"in use since this API server started: {listed}; move its clients before an upgrade")


def _slurm(workspace: Workspace, access: SlurmAccess) -> Finding:
    """Return whether Slurm answers, and knows the nodes that the spec has."""
    name, place = "reach slurm", "`slurm` of the fleet's Cluster"

    async def ask() -> Answered[ClusterState] | Silent | None:
        fabric = workspace.fabric()
        try:
            port = fabric.slurm()
            return None if port is None else await port.state()
        finally:
            await fabric.close()

    answer = run_async(ask())
    if answer is None or isinstance(answer, Silent):
        why = "there is none" if answer is None else f"{answer.reason}: {answer.detail}"
        return Finding(name, False, f"{access.login}: {why}", f"see {place}")
    lacking = sorted(set(workspace.fleet.nodes) - set(answer.value.members))
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        text = f"it has no node for {', '.join(lacking[:3])}{more}"
        return Finding(name, False, text, f"give them their names of slurm.conf in {place}")
    return Finding(name, True, f"{answer.value.server_version}, {len(answer.value.members)} nodes")


def _server_secrets(workspace: Workspace, where: str) -> Iterator[Finding]:
    """Resolve the secrets of the servers that installers and BMCs call. A lab's need none."""
    settings, secrets = workspace.fleet.settings, workspace.secrets
    if workspace.overlay is not None:
        return
    uses: dict[str | None, str] = {}
    if (events := settings.bmc_events) is not None:
        uses |= {events.certificate: "redfish.events' TLS certificate", events.key: "redfish.events' TLS key"}
    if (own := settings.installer) is not None:
        uses |= {own.certificate: "the installer's TLS certificate", own.key: "the installer's TLS key"}
        uses |= {own.host_ca: "the installer's host CA"}
    for name, use in uses.items():
        if name is not None and secrets.signer(name) is None:
            yield _tried(f"secret {name}", partial(_resolved, secrets, name, f"for {use}"), where)


def _channels(workspace: Workspace, where: str) -> Iterator[Finding]:
    """Load the URL of each channel, and contact nobody: `notify test` does."""
    messenger = chats(workspace)
    for channel in workspace.fleet.settings.notifications:
        if channel.kubernetes:
            yield _event_rights(workspace, channel)
            continue
        found = _tried(f"channel {channel.name}", partial(messenger.check, channel), where)
        yield replace(found, remedy="" if found.ok else f"{found.remedy}; then try it: reconciler notify test")
    for tracker in workspace.fleet.settings.tickets:
        yield _tried(f"tracker {tracker.name}", partial(_tracker, workspace, tracker), where)
    inventory = workspace.fleet.settings.inventory
    forges = (workspace.fleet.settings.drift_forge, None if inventory is None else inventory.forge)
    for forge in dict.fromkeys(one for one in forges if one is not None):
        yield _tried(f"forge {forge.repository}", partial(_forge_address, workspace, forge), where)
    if inventory is not None and inventory.secret:
        yield _tried(f"inventory {inventory.kind}", partial(_inventory_address, workspace, inventory), where)


def _inventory_address(workspace: Workspace, inventory: InventoryPolicy) -> str:
    """Return the URL. Raise UsageError for a token that lacks, or may not be sent there."""
    workspace.secrets.resolve(inventory.secret, inventory.place)
    return inventory.place


def _forge_address(workspace: Workspace, forge: SpecForge) -> str:
    return spec_forge(forge, workspace.secrets)[0]


def _event_rights(workspace: Workspace, channel: Channel) -> Finding:
    try:
        missing = run_async(node_events(workspace).missing_rights())
    except (DriverError, UsageError) as error:
        return Finding(f"channel {channel.name}", False, f"whether it may write Events is not known: {error}", "")
    lacks = "; ".join(map(str, missing))
    remedy = "kubectl apply -f deploy/kubernetes/rbac.yaml" if missing else ""
    return Finding(f"channel {channel.name}", not missing, f"may not {lacks}" if missing else "Events of nodes", remedy)


def _tracker(workspace: Workspace, tracker: Tracker) -> str:
    """Return where a tracker's tickets go. Raise UsageError for a secret that lacks, or may not be sent there."""
    client_of(tracker, workspace.secrets, workspace.clock)
    return f"{tracker.kind} {tracker.place}".strip()


def _host_secrets(workspace: Workspace, names: Iterable[str], where: str) -> Iterator[Finding]:
    """Resolve each secret that hosts are given, for the first node that needs it."""
    seen: set[SecretUse] = set()
    for node in map(workspace.fleet.nodes.__getitem__, names):
        for use in secret_uses(node.profile):
            if use not in seen:
                seen.add(use)
                yield _tried(
                    f"secret {use.name}", partial(_host_secret, workspace, use, node), f"{use.purpose}: {where}"
                )


def _host_secret(workspace: Workspace, use: SecretUse, node: Desired) -> str:
    workspace.fabric().host_secret(use.name, node, use.server)
    return f"for {node.node}: {use.purpose}"


def _resolved(secrets: SecretStore, name: str, use: str) -> str:
    secrets.resolve(name)
    return use


def _secrets(workspace: Workspace) -> Iterator[Finding]:
    """Resolve each secret that the spec names, for the address of the first node that needs it."""
    fleet = workspace.fleet
    settings = fleet.settings
    where = f"see docs/how-to/secrets.md; the file is {default_path()}, and a lab's is RECONCILER_ENDPOINTS"
    names, _ = workspace.selection
    logins = workspace.secrets if workspace.overlay is None else workspace.overlay.secrets_of(settings)
    node, bmc = next(((n, bmc) for n in names if (bmc := fleet.nodes[n].endpoints.bmc)), ("", None))
    host = next((fleet.nodes[n].endpoints.host for n in names if fleet.nodes[n].endpoints.host), None)
    if settings.bmc_credentials and bmc:
        address = bmc if workspace.overlay is None else workspace.overlay.bmc(bmc).url
        name = settings.bmc_credentials
        read = partial(logins.credentials, name, address, node=node)
        yield _tried(f"secret {name}", lambda: (read(), "for BMCs")[1], where)
        if settings.rotate_after_s is not None and not logins.is_of_each_node(name):
            told = "redfish.rotateAfter is given, and no program writes this secret"
            yield Finding(f"password {name}", False, told, f"give it `exec` and `write`: {where}")
    if settings.ssh_credentials and host:
        target = None if workspace.overlay is None else workspace.overlay.ssh(host)
        to = host if target is None else f"{target.host}:{target.port}"
        key = settings.ssh_credentials
        yield _tried(f"secret {key}", lambda: (workspace.secrets.resolve(key, to), "for SSH")[1], where)
    if settings.cluster and settings.cluster.kubeconfig and workspace.overlay is None:
        kubeconfig = settings.cluster.kubeconfig
        yield _tried(f"secret {kubeconfig}", lambda: str(workspace.secrets.file(kubeconfig)), where)
    yield from _server_secrets(workspace, where)
    yield from _host_secrets(workspace, names, where)
    yield from _channels(workspace, where)
    keys = {n.profile.image.key for n in fleet.nodes.values() if n.profile.image is not None and n.profile.image.key}
    for key_name in sorted(keys):
        known = workspace.secrets.public_key(key_name) is not None
        remedy = (
            "" if known else f"add its public key under `keys:` in {default_path()}; until then no image is trusted"
        )
        yield Finding(f"key {key_name}", known, "known" if known else "unknown", remedy)
    for (image, version), verified in workspace.signatures.items():
        if verified is False:
            yield Finding("signature", False, f"image {image} {version} is not signed by its key", "sign it again")


def _factory_logins(workspace: Workspace) -> Iterator[Finding]:
    """Yield each login of BMCs and PDUs that a vendor ships its machines with. It is used all the same."""
    settings, secrets = workspace.fleet.settings, workspace.secrets
    names, _ = workspace.selection
    nodes = workspace.fleet.nodes
    bmcs = ((bmc, name) for name in names if (bmc := nodes[name].endpoints.bmc))
    pdus = ((outlet.pdu, outlet.pdu) for name in names for outlet in nodes[name].outlets if outlet.pdu)
    nowhere = (None, "")
    uses = (
        (settings.bmc_credentials, *next(bmcs, nowhere), "whoever reaches the BMCs owns the machines"),
        (settings.pdu_credentials, *next(pdus, nowhere), "whoever reaches the PDUs can turn the machines off"),
    )
    asked: set[str] = set()
    for name, address, node, risk in uses:  # often one secret for both
        if name is None or name in asked or address is None or workspace.overlay is not None:
            continue
        asked.add(name)
        try:
            vendor = factory_login(secrets.credentials(name, address, node=node))
        except ReconcilerError:
            continue  # reported by the check of the secret
        if vendor:
            told = f"the login that {vendor} comes with: {risk}"
            yield Finding(f"password {name}", False, told, "set another one on each of them, then in the secret")


def _ledger(workspace: Workspace) -> str:
    with workspace.present_ledger() as ledger:
        place = ledger.place  # not the URL of the request, which may hold a password
        missing = f"none yet: apply and run make {place.name}"
        return missing if place.kind == "none" else f"{place.name}, id {ledger.id}"


def _stops(workspace: Workspace) -> Iterator[Finding]:
    """Yield the stop and the storm brake, which are no failure but explain why nothing happens."""
    try:
        with workspace.present_ledger() as ledger:
            holds = by_subject((), ledger.holds())
    except ReconcilerError:
        return  # reported by the check of the ledger
    now = workspace.clock.now()
    for found in (stopped(holds, now), braked(holds, now)):
        if found is not None:
            yield Finding("fleet", True, found.detail, "reconciler resume, once the cause is known")


def _tried(check: str, attempt: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(check, True, attempt())
    except ReconcilerError as error:
        return Finding(check, False, str(error), remedy)


_REMEDIES = {
    "unreachable": "check cabling, VLAN, firewall and the address in the spec",
    "auth": "check the secret; after a change of password every caller of that BMC must stop first, or it locks",
    "busy": "it answers, and has no session or no time for us: end sessions that nobody needs, or wait",
    "timeout": "it does not answer in time: raise observation.deadlines where it is slow; a BMC reset may help",
    "malformed": "its answers are malformed: check that the address is a BMC's, and its firmware",
    "unsupported": "it lacks a required feature: see the detail",
}


def _machines(workspace: Workspace) -> Iterator[Finding]:
    """Yield what one pass finds: which sources answer, and which actions are beyond a node's BMC."""
    observation = workspace.observe()
    yield from _reachability(workspace, observation)
    yield from _impossible(workspace, observation)
    yield from _ways_in(workspace, observation)


def _ways_in(workspace: Workspace, observation: Observation) -> Iterator[Finding]:
    """Yield by which way installers get into the nodes, and why not by one that the spec has before it."""
    fleet = workspace.fleet
    if fleet.settings.installer is None:
        return
    found: dict[tuple[BootWay, str], list[str]] = {}
    for name in workspace.selection[0]:
        desired, seen = fleet.nodes[name], observation.nodes[name]
        if isinstance(seen.inventory, Silent) or desired.profile.image is None:
            continue
        abilities = seen.inventory.value.abilities
        way = choose(desired, abilities)
        if way is not None:  # what can't be installed at all is among what BMCs can't write
            found.setdefault((way, passed_over(desired, abilities)), []).append(name)
    for (way, why), nodes in found.items():
        detail = f"{fold(nodes)} ({len(nodes)}): {way.value}" + (f", since {why}" if why else "")
        yield Finding("boot installers", True, detail)


def _impossible(workspace: Workspace, observation: Observation) -> Iterator[Finding]:
    """Yield the actions that BMCs can't do, of those that the spec asks for or may need."""
    fleet = workspace.fleet
    comparer = Comparer(IgnoreRules(fleet.settings.ignore, workspace.clock.now()))
    names, _ = workspace.selection
    refused: dict[tuple[str, str], list[str]] = {}
    for name in names:
        desired, seen = fleet.nodes[name], observation.nodes[name]
        if isinstance(seen.inventory, Silent) or desired.state is not NodeState.ACTIVE:
            continue
        items = comparer.compare(desired, seen, NodeRecord(name))
        changes = {item.path for item in items if item.kind in ACTIONABLE}
        if any(item.concern is Concern.IMAGE for item in items):
            changes.add(IMAGE)
        for found in impossible(desired, seen.inventory.value, changes).items():
            refused.setdefault(found, []).append(name)
    for (action, why), nodes in refused.items():
        remedy = "correct the spec, or see to the BMC (licence, settings, firmware): no node is drained for it"
        yield Finding("can write", False, f"{fold(nodes)} ({len(nodes)}): {action}: {why}", remedy)


def _reachability(workspace: Workspace, observation: Observation) -> Iterator[Finding]:
    """Yield who answers by source and reason, so that forty silent BMCs are one problem."""
    names, _ = workspace.selection
    for source in ("redfish", "ssh", "kubernetes"):
        silent: dict[tuple[str, str], list[str]] = {}
        explained: dict[str, list[str]] = {}  # no problem, and no answer either
        answering = 0
        for name in names:
            seen = observation.nodes[name]
            reading = {"redfish": seen.hot, "ssh": seen.host, "kubernetes": seen.member}[source]
            if not isinstance(reading, Silent):
                answering += 1
            elif reading.reason is UnknownReason.EXPLAINED:
                explained.setdefault(reading.detail, []).append(name)
            elif reading.reason is not UnknownReason.NOT_ASKED:
                detail = reading.detail if source == "kubernetes" else ""
                silent.setdefault((reading.reason.value, detail), []).append(name)
        asked = answering + sum(map(len, [*explained.values(), *silent.values()]))
        known = "".join(f"; {fold(nodes)} ({len(nodes)}): {why}" for why, nodes in explained.items())
        if asked:
            yield Finding(f"reach {source}", not silent, f"{answering} of {asked} nodes answer{known}")
        for (reason, error), nodes in silent.items():
            detail = f"{fold(nodes)} ({len(nodes)}): {reason}" + (f", {error}" if error else "")
            yield Finding(f"reach {source}", False, detail, _REMEDIES.get(reason, ""))
