"""What the planner reasons over: conditions of one node, each true, false or unknown.

An unknown is *explained* when its cause is known (powered off, in POST, in the installer): planning goes on and what
lies behind it is predicted. Any other unknown never leads to a disruptive action (invariant 4).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.diff.ignore import IgnoreRules
from reconciler.gate.certificate import binding_of, judge, tests_digest
from reconciler.health.signals import Signal, signals
from reconciler.model.desired import Desired, Profile, Settings
from reconciler.model.drift import ACTIONABLE, DriftClass, DriftItem
from reconciler.model.gate import Binding
from reconciler.model.observed import Answered, HostFacts, Member, Observed, Silent
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark, NodeRecord, read_mark
from reconciler.model.vocab import Activation, Concern, DrainProvider, Power, Source
from reconciler.planner.past import detectors_until, drained, failed_gate, treated_after
from reconciler.planner.staged import waits
from reconciler.planner.witnesses import boot_is_stuck, host_down, identity, known_cause, not_installed, tampered

IDENTITY = "identity_ok"
POWER_ON = "power_on"
HOST_UP = "host_up"
REGISTERED = "registered"  # the cluster has a node object
MEMBER = "member"  # and it is Ready
MARKED = "marked"
QUIESCED = "quiesced"
IN_SERVICE = "in_service"
BIOS = "bios_ok"
BIOS_STAGED = "bios_staged"
BOOT = "boot_ok"
BOOT_STAGED = "boot_staged"
IMAGE = "image_ok"
SIGNATURE = "signature_ok"  # the image that the spec pins is signed by a key we trust
HOST = "host_ok"
KUBELET = "kubelet_runs"  # asked for only where it is stopped under pods
GPU_PLAIN = "gpu_plain"  # MIG off, as diagnostics need it
GPU = "gpu_ok"
LABELS = "labels_ok"
TRUST = "trust_ok"
GATE = "gate_ok"
HARDWARE = "hardware_ok"
HEALTHY = "healthy"
TREATED = "treated"


_ON = frozenset({Power.ON, Power.POWERING_ON})


def firmware_ok(component: str) -> str:
    return f"firmware_ok:{component}"


def firmware_staged(component: str) -> str:
    return f"firmware_staged:{component}"


@dataclass(frozen=True, slots=True)
class OfProfile:
    """What nodes of one profile share. `compared`: conditions that drift speaks of; `trusted`: those behind TRUST."""

    tests_digest: str
    compared: frozenset[str]
    trusted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """What a node's conditions depend on besides the node.

    `signatures`: (image, version) -> whether its signature verifies; None where the key is not known.
    """

    settings: Settings
    ledger: str
    now: datetime
    signatures: Mapping[tuple[str, str], bool | None]
    neighbours_answer: frozenset[str] = frozenset()  # "label=value" domains in which some other node answers over SSH
    _of_profiles: dict[str, OfProfile] = field(default_factory=dict, compare=False)

    def of(self, profile: Profile) -> OfProfile:
        if profile.digest not in self._of_profiles:
            firmware = [firmware_ok(row.component) for row in profile.firmware]
            self._of_profiles[profile.digest] = OfProfile(
                tests_digest="" if profile.acceptance is None else tests_digest(profile.acceptance),
                compared=frozenset({*_OF_CONCERN.values(), MEMBER, LABELS, *firmware}),
                trusted=(IMAGE, SIGNATURE, BOOT, *firmware),
            )
        return self._of_profiles[profile.digest]


@dataclass(frozen=True, slots=True)
class Conditions:
    """`false` is everything that is neither true nor unknown. `because`: condition -> the drift or evidence for it."""

    true: frozenset[str]
    unknown: Mapping[str, str]
    explained: Mapping[str, str]
    because: Mapping[str, tuple[str, ...]]
    signals: tuple[Signal, ...]
    ignored: tuple[Signal, ...]  # by a rule of the spec: told, and nothing else
    doubted: tuple[Signal, ...]  # which may be of before a treatment
    mark: Mark | None  # ours
    foreign_mark: Mark | None
    foreign_cordon: bool
    tampered: str  # evidence that the running image is not what it claims to be
    waiting: str  # a boot or an installation is under way, or a detector is to speak: look again
    waits_until: datetime | None  # for how long, where that is known
    gate_failed: str  # what the gate found wrong with this very machine, to which nothing was done since

    @property
    def key(self) -> Hashable:
        """Equal for states in which the same is to be done for the same reasons."""
        told = (self.unknown, self.explained, self.because)
        return (
            self.true, *[tuple(words.items()) for words in told], self.signals, self.ignored, self.doubted,
            self.foreign_cordon, self.tampered, self.waiting, self.waits_until, self.gate_failed,
        )  # fmt: skip


@dataclass(slots=True)
class _Sheet:
    """Collects verdicts while a node is judged."""

    explained_by: str  # "" = unknowns of the host have no known cause
    true: set[str] = field(default_factory=set)
    unknown: dict[str, str] = field(default_factory=dict)
    explained: dict[str, str] = field(default_factory=dict)
    because: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def set(self, name: str, value: bool | None, *why: str) -> None:
        if value:
            self.true.add(name)
        elif value is None and self.explained_by:
            self.explained[name] = self.explained_by
        elif value is None:
            self.unknown[name] = "; ".join(why) or "not known"
        if value is not True and why:
            self.because[name] = why

    def copy(self) -> _Sheet:
        return _Sheet(self.explained_by, set(self.true), dict(self.unknown), dict(self.explained), dict(self.because))


@dataclass(frozen=True, slots=True)
class Findings:
    """What holds of a node whatever its drift is."""

    sheet: _Sheet
    plain: bool | None  # GPU_PLAIN, for which drift is the evidence
    signals: tuple[Signal, ...]
    ignored: tuple[Signal, ...]
    doubted: tuple[Signal, ...]
    mark: Mark | None
    foreign_mark: Mark | None
    foreign_cordon: bool
    tampered: str
    waiting: str
    waits_until: datetime | None
    gate_failed: str


def evaluate(
    desired: Desired,
    observed: Observed,
    items: Sequence[DriftItem],
    record: NodeRecord,
    context: Context,
    rules: IgnoreRules | None = None,
) -> Conditions:
    """All conditions of one node, as of `context.now`. `rules`: for signals; `items` know them already."""
    return with_drift(find(desired, observed, record, context, rules), desired, items, record, context)


def with_drift(
    findings: Findings, desired: Desired, items: Sequence[DriftItem], record: NodeRecord, context: Context
) -> Conditions:
    """All conditions of a node with these findings and this drift."""
    sheet = findings.sheet.copy()
    _from_drift(sheet, context.of(desired.profile), items)
    _from_attempts(sheet, desired, record)
    sheet.set(GPU_PLAIN, findings.plain, *_paths(items, Concern.GPU))
    _signature_and_trust(sheet, desired, context)
    return Conditions(
        true=frozenset(sheet.true),
        unknown=sheet.unknown,
        explained=sheet.explained,
        because=sheet.because,
        signals=findings.signals,
        ignored=findings.ignored,
        doubted=findings.doubted,
        mark=findings.mark,
        foreign_mark=findings.foreign_mark,
        foreign_cordon=findings.foreign_cordon,
        tampered=findings.tampered,
        waiting=findings.waiting,
        waits_until=findings.waits_until,
        gate_failed=findings.gate_failed,
    )


def find(
    desired: Desired, observed: Observed, record: NodeRecord, context: Context, rules: IgnoreRules | None = None
) -> Findings:
    system = observed.hot.value if isinstance(observed.hot, Answered) else None
    facts = observed.host.value if isinstance(observed.host, Answered) else None
    explained_by, waiting = known_cause(system, observed)
    if waiting and boot_is_stuck(system, record, context.now):
        explained_by = waiting = ""
    if (
        not waiting
        and not explained_by
        and not_installed(desired, observed, record, context.now, context.neighbours_answer)
    ):
        explained_by = "no system answers, and the node is in no cluster"
    elif (
        not waiting
        and not explained_by
        and host_down(desired, observed, record, context.now, context.neighbours_answer)
    ):
        explained_by = "the host is down"
    sheet = _Sheet(explained_by if facts is None else "")
    _power(sheet, desired, observed, record, context, waiting)
    found, ignored = _heard(desired, observed, rules)
    until = detectors_until(record, context.now) if found else None
    doubted = tuple(s for s in found if s.source is Source.KUBERNETES) if until is not None else ()
    found = tuple(s for s in found if s not in doubted) if doubted else found
    if doubted and not found and not waiting:
        waiting = f"{doubted[0].detail}, maybe from before the treatment: its detector has time to take it back"
    else:
        until = None
    _health(sheet, observed, found, doubted)
    mark, foreign_mark, foreign_cordon = _cluster(sheet, desired, observed, record, context)
    _gate(sheet, desired, observed, record, context)
    _identity(sheet, desired, observed, facts, record)
    return Findings(
        sheet=sheet,
        plain=_gpu_plain(facts),
        signals=found,
        ignored=ignored,
        doubted=doubted,
        mark=mark,
        foreign_mark=foreign_mark,
        foreign_cordon=foreign_cordon,
        tampered=tampered(desired, facts),
        waiting=waiting,
        waits_until=until,
        gate_failed=_failed_gate(sheet, desired, observed, record, context),
    )


def _heard(
    desired: Desired, observed: Observed, rules: IgnoreRules | None
) -> tuple[tuple[Signal, ...], tuple[Signal, ...]]:
    """Signals that count, and those that a rule of the spec ignores."""
    found = signals(desired.profile, observed)
    if not found or rules is None:
        return found, ()
    ignored = tuple(signal for signal in found if rules.match(desired, signal.path) is not None)
    return tuple(signal for signal in found if signal not in ignored), ignored


def _power(
    sheet: _Sheet, desired: Desired, observed: Observed, record: NodeRecord, context: Context, waiting: str
) -> None:
    if isinstance(observed.hot, Silent):
        power: bool | None = True if isinstance(observed.host, Answered) else None
        sheet.set(POWER_ON, power, f"BMC {observed.hot.reason}")
    else:
        state = observed.hot.value.power
        sheet.set(POWER_ON, None if state is None else state in _ON, f"power {state}")
    if isinstance(observed.host, Answered):
        sheet.set(HOST_UP, True)
    elif POWER_ON not in sheet.true and POWER_ON not in sheet.unknown:
        sheet.because[HOST_UP] = sheet.because[POWER_ON]
    elif host_down(desired, observed, record, context.now, context.neighbours_answer) and not waiting:
        sheet.because[HOST_UP] = ("host_down: NotReady and SSH silent, while its BMC and its neighbours answer",)
    else:
        reason = f"SSH {observed.host.reason}" + (f": {observed.host.detail}" if observed.host.detail else "")
        sheet.set(HOST_UP, None, reason)


def _paths(items: Iterable[DriftItem], *concerns: Concern) -> tuple[str, ...]:
    return tuple(item.path for item in items if item.concern in concerns and item.kind in ACTIONABLE)


_WITNESSES: Mapping[Source | None, str] = {Source.REDFISH: "BMC ", Source.SSH: "SSH ", Source.KUBERNETES: "cluster "}


def _verdict(sheet: _Sheet, name: str, items: Iterable[DriftItem]) -> None:
    """A condition from the drift items that speak about it: any drift makes it false, else any unknown unknown."""
    bad, unknown = [], []
    for item in items:
        if item.kind in ACTIONABLE:
            bad.append(item.path)
        elif item.kind is DriftClass.UNKNOWN:
            unknown.append(f"{item.path} ({_WITNESSES.get(item.source, '')}{item.detail})")
    if bad:
        sheet.because[name] = tuple(bad)
    else:
        sheet.set(name, None if unknown else True, *unknown)


_OF_CONCERN: Mapping[Concern, str] = {
    Concern.BIOS: BIOS,
    Concern.BOOT: BOOT,
    Concern.IMAGE: IMAGE,
    Concern.HOST: HOST,
    Concern.GPU: GPU,
    Concern.HARDWARE: HARDWARE,
}


def _speaks_of(item: DriftItem) -> str | None:
    """The condition that an item of drift speaks about."""
    if item.concern is Concern.FIRMWARE:
        return firmware_ok(item.path.removeprefix("firmware."))
    if item.concern is Concern.CLUSTER:
        return MEMBER if item.path == "cluster.member" else LABELS
    return _OF_CONCERN.get(item.concern)


def _from_drift(sheet: _Sheet, profile: OfProfile, items: Sequence[DriftItem]) -> None:
    """What no item speaks about is as desired."""
    sheet.true |= profile.compared
    if not items:
        return
    about: dict[str, list[DriftItem]] = {}
    for item in items:
        name = _speaks_of(item)
        if name is not None:
            about.setdefault(name, []).append(item)
    sheet.true.difference_update(about)
    for name, found in about.items():
        _verdict(sheet, name, found)
    drifted = [item for item in about.get(BIOS, ()) if item.kind in ACTIONABLE]
    if drifted and all(item.kind is DriftClass.IN_PROGRESS for item in drifted):
        sheet.set(BIOS_STAGED, True)


def _from_attempts(sheet: _Sheet, desired: Desired, record: NodeRecord) -> None:
    """Staged by us, as far as it still is to take effect."""
    if not record.attempts:
        return
    if BOOT not in sheet.true and waits(record, "set_boot", "", Activation.REBOOT):
        sheet.true.add(BOOT_STAGED)
    for item in desired.profile.firmware:
        if firmware_ok(item.component) not in sheet.true and waits(
            record, "update_firmware", item.component, item.activation
        ):
            sheet.true.add(firmware_staged(item.component))


def _health(sheet: _Sheet, observed: Observed, found: tuple[Signal, ...], doubted: tuple[Signal, ...]) -> None:
    if found:
        sheet.because[HEALTHY] = tuple(signal.path for signal in found)
    elif doubted:
        sheet.unknown[HEALTHY] = f"{doubted[0].detail}, maybe from before the treatment"
    elif isinstance(observed.host, Answered):
        facts = observed.host.value
        blind = [name for name, value in (("GPUs", facts.gpus), ("kernel log", facts.xids)) if value is None]
        sheet.set(HEALTHY, None if blind else True, *(f"{name} could not be read" for name in blind))
    elif HOST_UP not in sheet.true and HOST_UP not in sheet.unknown and POWER_ON in sheet.true:
        if isinstance(observed.member, Answered) and observed.member.value is None:
            sheet.set(HEALTHY, None)  # nothing is installed: there is nothing to be ill
        else:
            sheet.because[HEALTHY] = ("health.host_down",)
    else:
        sheet.set(HEALTHY, None, sheet.unknown.get(HOST_UP) or "the host does not answer")


def _gpu_plain(facts: HostFacts | None) -> bool | None:
    if facts is None or facts.gpus is None:
        return None
    modes = {(gpu.mig_current, gpu.mig_pending) for gpu in facts.gpus if not gpu.lost}
    if any(current is None for current, _ in modes):
        return None
    return not any(current or pending for current, pending in modes)


def _cluster(
    sheet: _Sheet, desired: Desired, observed: Observed, record: NodeRecord, context: Context
) -> tuple[Mark | None, Mark | None, bool]:
    drain = desired.profile.drain
    if context.settings.cluster is None or desired.profile.membership is None:
        # Nothing schedules work here that we know of: in service means that the host is up.
        sheet.set(IN_SERVICE, HOST_UP in sheet.true and not drained(record, None))
        quiet = POWER_ON not in sheet.true or drained(record, None)
        sheet.set(QUIESCED, quiet and POWER_ON not in sheet.unknown)
        return None, None, False
    if isinstance(observed.member, Silent):
        why = f"the cluster can't be read ({observed.member.reason})"
        for name in (REGISTERED, MARKED, QUIESCED, IN_SERVICE):
            sheet.unknown[name] = why
        return None, None, False
    member = observed.member.value
    if member is None:
        sheet.set(QUIESCED, True)  # no node object, no pods (pitfall H7)
        sheet.because[REGISTERED] = ("cluster.member",)
        return None, None, False
    sheet.set(REGISTERED, True)
    mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
    ours = mark if mark is not None and mark.ledger == context.ledger else None
    tainted = any(taint.key == MARK_TAINT for taint in member.taints)
    sheet.set(MARKED, ours is not None and tainted and member.unschedulable)
    sheet.set(IN_SERVICE, bool(member.ready) and not member.unschedulable and not tainted)
    sheet.set(QUIESCED, MARKED in sheet.true and _quiet(member, ours, drain.provider, record))
    foreign_cordon = member.unschedulable and (mark is None or (ours is not None and not ours.cordoned))
    return ours, (mark if ours is None else None), foreign_cordon


def _quiet(member: Member, mark: Mark | None, provider: DrainProvider, record: NodeRecord) -> bool:
    if provider is DrainProvider.NONE:
        return True
    if provider is DrainProvider.COMMAND:
        return drained(record, mark)
    return not any(pod.evictable for pod in member.pods)


def _signature_and_trust(sheet: _Sheet, desired: Desired, context: Context) -> None:
    image = desired.profile.image
    verified: bool | None = True
    if image is not None:
        verified = context.signatures.get((image.name, image.version))
        if verified:
            sheet.true.add(SIGNATURE)
        elif verified is None:
            sheet.unknown[SIGNATURE] = f"no trusted key {image.key!r} for image {image.name} {image.version}"
        else:
            sheet.because[SIGNATURE] = (f"the signature of image {image.name} {image.version} does not verify",)
    else:
        sheet.true.add(SIGNATURE)
    parts = context.of(desired.profile).trusted
    if sheet.true.issuperset(parts):
        sheet.true.add(TRUST)
        return
    false = [
        part for part in parts if part not in sheet.true and part not in sheet.unknown and part not in sheet.explained
    ]
    if false:
        sheet.because[TRUST] = tuple(why for part in false for why in sheet.because.get(part, (part,)))
    else:
        sheet.set(TRUST, None, *(sheet.unknown[part] for part in parts if part in sheet.unknown))


def _gate(sheet: _Sheet, desired: Desired, observed: Observed, record: NodeRecord, context: Context) -> None:
    acceptance = desired.profile.acceptance
    if acceptance is None:
        sheet.because[GATE] = ("the persona declares no acceptance profile: nothing can prove this node",)
        return
    binding = _binding(desired, observed, context)
    if isinstance(binding, str):
        if record.certificate is None:
            sheet.because[GATE] = ("no certificate",)
        else:
            sheet.set(GATE, None, binding)
        return
    judgement = judge(record.certificate, acceptance, binding, context.now)
    later = treated_after(record)
    sheet.set(GATE, judgement.valid and not later, *judgement.reasons, *later)


def _failed_gate(sheet: _Sheet, desired: Desired, observed: Observed, record: NodeRecord, context: Context) -> str:
    if GATE not in sheet.because or not record.attempts:
        return ""
    return failed_gate(record, _binding(desired, observed, context))


def _binding(desired: Desired, observed: Observed, context: Context) -> Binding | str:
    """What a certificate must bind; a sentence when that is not known, or nothing can prove the node."""
    acceptance = desired.profile.acceptance
    if acceptance is None:
        return "no acceptance profile"
    return binding_of(desired, observed, context.of(desired.profile).tests_digest)


def _identity(sheet: _Sheet, desired: Desired, observed: Observed, facts: HostFacts | None, record: NodeRecord) -> None:
    """Serial (and UUID) over Redfish against every other witness: the spec, the host, or the ledger (pitfall A14)."""
    if isinstance(observed.hot, Silent):
        sheet.unknown[IDENTITY] = f"BMC {observed.hot.reason}"
        return
    verdict, why = identity(desired, observed.hot.value, facts, record)
    if verdict:
        sheet.true.add(IDENTITY)
    elif verdict is None:
        sheet.unknown[IDENTITY] = why
    else:
        sheet.because[IDENTITY] = (why,)
