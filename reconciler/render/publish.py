"""An observation without what names machines, and back again as far as the spec itself has the names.

Redaction is by type, not by pattern (DESIGN 10): each value that leaves is built here anew, field by field, so what a
later version reads in addition is not published before somebody has put it down here.

The key of the digests is drawn for each document and forgotten with it. Nobody needs it again: within a document equal
names have equal digests, and what the spec wanted is published as digests beside them. A reader who has the spec of
that commit therefore knows which words belong to those digests, and to no others. A key that were kept, for each fleet,
would have to be kept secret for ever, and whoever came by it could try all serials of a maker against every document.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from reconciler import __version__
from reconciler.diff import normalise
from reconciler.model.desired import Desired, Fleet
from reconciler.model.gate import Binding, Certificate, TestResult
from reconciler.model.gpus import Gpu, GpuCells, MigDevice
from reconciler.model.observed import (
    HIDDEN,
    Answered,
    AttributeValue,
    BmcEvent,
    Drive,
    FirmwareItem,
    HostFacts,
    ImageIdentity,
    KernelEvent,
    Link,
    Member,
    Nic,
    NvmeHealth,
    Observation,
    Observed,
    Part,
    Pod,
    RedfishHot,
    RedfishInventory,
    Silent,
    Xid,
)
from reconciler.model.ports import Recollection
from reconciler.model.published import OWN_NAMES, PUBLISHED_FORMAT, SEALED, Published, PublishedNode
from reconciler.model.records import (
    MARK_TAINT,
    OWNER_ANNOTATION,
    Applied,
    Attempt,
    Hold,
    NodeRecord,
    Rollout,
    read_mark,
    write_mark,
)
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.plan_request import records_needed

T = TypeVar("T")

_DURATIONS: Final = 2000  # of the newest attempts: enough for estimates
_IN_RECORD: Final = frozenset({*OWN_NAMES, "image.nonce", "image.root_disk"})


@dataclass(frozen=True, slots=True)
class Screen:
    """What a value looks like from outside. `name` gives the name under which a machine is known there."""

    name: Callable[[str], str]
    bios: frozenset[str]
    labels: frozenset[str]
    taints: frozenset[str]

    def own(self, value: str | None) -> str | None:
        return None if value is None else self.name(value)

    # --- one node -----------------------------------------------------------------------------------------------------

    def observed(self, seen: Observed) -> Observed:
        return Observed(
            seen.node,
            self._reading(seen.hot, self._hot),
            self._reading(seen.inventory, self._inventory),
            self._reading(seen.host, self._host),
            self._reading(seen.member, lambda member: None if member is None else self._member(seen.node, member)),
        )

    def _reading(self, reading: Answered[T] | Silent, screened: Callable[[T], T]) -> Answered[T] | Silent:
        """Details name addresses; those of a known cause are words of ours (converge/observe.py)."""
        if isinstance(reading, Silent):
            return Silent(reading.at, reading.reason, reading.detail if _is_ours(reading) else "")
        return Answered(reading.at, screened(reading.value))

    def _hot(self, hot: RedfishHot) -> RedfishHot:
        return RedfishHot(
            hot.manufacturer, hot.model, self.own(hot.serial), self.own(hot.uuid), hot.power, hot.boot_phase, None,
            None if hot.pending_bios is None else self._bios(hot.pending_bios), None, hot.health,
            unknown=_unknown(hot.unknown),
        )  # fmt: skip

    def _bios(self, values: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
        """Those that the spec mentions: others may be asset tags, accounts, addresses to boot from."""
        return {name: values[name] for name in values if name in self.bios}

    def _inventory(self, found: RedfishInventory) -> RedfishInventory:
        firmware = found.firmware
        return RedfishInventory(
            None if found.bios is None else self._bios(found.bios), found.secure_boot, found.boot_order,
            None if firmware is None else {at: FirmwareItem(firmware[at].version) for at in firmware},
            found.memory_bytes, found.dimms, found.processors,
            None if found.nics is None else tuple(Nic(str(at)) for at in range(len(found.nics))),
            None if found.drives is None else tuple(
                Drive(str(at), health=drive.health, failing=drive.failing) for at, drive in enumerate(found.drives)
            ),
            None,
            None if found.events is None else tuple(
                BmcEvent(str(at), "", event.severity, "", event.kind, event.age_s, event.settled)
                for at, event in enumerate(found.events)
            ),
            None,
            None if found.parts is None else tuple(
                Part(part.kind, str(at), part.health) for at, part in enumerate(found.parts)
            ),
            _unknown(found.unknown),
        )  # fmt: skip

    def _host(self, facts: HostFacts) -> HostFacts:
        gpus, links, xids = facts.gpus, facts.links, facts.xids
        return HostFacts(
            self.own(facts.hostname), facts.kernel, None, None, self.own(facts.serial), self.own(facts.uuid),
            None if facts.image is None else self._image(facts.image), facts.secure_boot, facts.driver,
            None if gpus is None else tuple(map(self._gpu, gpus)), facts.nvlinks_active,
            None if xids is None else tuple(Xid(x.code, x.device, x.count, x.switch, x.fatal) for x in xids),
            None if links is None else tuple(Link("", link.up, link.rate_gbps, link.kind) for link in links),
            None if facts.nvme is None else tuple(map(self._nvme, facts.nvme)),
            facts.services, facts.sysctls, _unknown(facts.unknown), facts.smi, facts.nvlinks_slow,
            None if facts.kernel_events is None else tuple(
                KernelEvent(event.kind, event.device, event.count) for event in facts.kernel_events
            ),
        )  # fmt: skip

    def _image(self, image: ImageIdentity) -> ImageIdentity:
        return ImageIdentity(
            image.image, image.version, image.sha256, self.own(image.root_disk), self.own(image.nonce),
            image.os_release_id, image.os_release_version, self.own(image.booted_disk),
        )  # fmt: skip

    def _gpu(self, gpu: Gpu) -> Gpu:
        parts = tuple(MigDevice(part.gpu, part.profile, self.name(part.uuid)) for part in gpu.mig_devices)
        return Gpu(
            gpu.index, gpu.pci, self.own(gpu.uuid), gpu.name, self.own(gpu.serial), gpu.vbios, gpu.ecc_enabled,
            gpu.ecc_uncorrectable, gpu.remap_pending, gpu.remap_failed, gpu.mig_current, gpu.mig_pending, parts,
            gpu.lost, _cells(gpu.cells), gpu.ecc_uncorrectable_ever, gpu.remapped_uncorrectable, gpu.pcie_replays,
        )  # fmt: skip

    def _nvme(self, drive: NvmeHealth) -> NvmeHealth:
        return NvmeHealth(
            "", self.own(drive.serial), None, drive.critical_warning, drive.media_errors,
            drive.percentage_used, drive.available_spare, drive.spare_threshold,
        )  # fmt: skip

    def _member(self, node: str, member: Member) -> Member:
        """How many pods there are, and whether they can be evicted, is what a drain goes by; whose they are, is not."""
        mark = read_mark(member.annotations.get(OWNER_ANNOTATION))
        owner = {} if mark is None else {
            OWNER_ANNOTATION: write_mark(replace(mark, ledger=self.name(mark.ledger), plan="", reason=""))
        }  # fmt: skip
        kept = self.taints | {MARK_TAINT}
        return Member(
            node, "", "", member.ready, member.conditions, member.unschedulable,
            {key: value for key, value in member.labels.items() if key in self.labels}, owner,
            tuple(taint for taint in member.taints if taint.key in kept), member.kubelet_version,
            tuple(Pod("", "", "", pod.phase, pod.owner_kind, pod.evictable) for pod in member.pods),
            member.control_plane, system_uuid=self.name(member.system_uuid) if member.system_uuid else "",
        )  # fmt: skip

    # --- what the ledger knows ----------------------------------------------------------------------------------------

    def record(self, record: NodeRecord) -> NodeRecord:
        certificate = record.certificate
        return NodeRecord(
            record.node,
            serial=self.own(record.serial),
            uuid=self.own(record.uuid),
            holds=tuple(map(self.hold, record.holds)),
            applied={path: self._applied(path, value) for path, value in record.applied.items()},
            attempts=tuple(
                Attempt(a.action, a.target, a.cause, a.at, a.outcome, _words(a.detail), a.ended_at)
                for a in record.attempts
            ),
            certificate=None if certificate is None else self._certificate(certificate),
            nonce=self.own(record.nonce),
            silent_since=record.silent_since,
            malformed=_words(record.malformed),
            released_at=record.released_at,
            fleet=_words(record.fleet),
        )

    def _applied(self, path: str, applied: Applied) -> Applied:
        value = self.name(applied.value) if path in _IN_RECORD and isinstance(applied.value, str) else applied.value
        return Applied(value, applied.spec_digest, applied.commit, applied.at)

    def _certificate(self, found: Certificate) -> Certificate:
        bound = found.binding
        results = tuple(
            TestResult(r.test, r.tool, r.verdict, tuple(map(_words, r.reasons)), r.metrics, r.tool_version)
            for r in found.results
        )
        binding = Binding(
            self.name(bound.serial), tuple(sorted(map(self.name, bound.gpu_serials))), bound.image_sha256,
            bound.firmware, bound.bios_digest, bound.tests_digest,
        )  # fmt: skip
        return Certificate(found.format_version, found.node, found.issued_at, binding, results, found.adopted)

    def hold(self, hold: Hold) -> Hold:
        return Hold(hold.id, hold.subject, _words(hold.reason), _words(hold.owner), hold.since, hold.until, "")

    def rollout(self, rollout: Rollout) -> Rollout:
        return replace(rollout, values=self._values(rollout.values), before=self._values(rollout.before))

    def _values(self, values: Mapping[str, tuple[Any, ...]]) -> Mapping[str, tuple[Any, ...]]:
        return {
            path: tuple(self.name(v) if path in _IN_RECORD and isinstance(v, str) else v for v in given)
            for path, given in values.items()
        }


def _is_ours(silent: Silent) -> bool:
    return silent.reason is UnknownReason.EXPLAINED


def _words(text: str) -> str:
    """Of a machine or a person: that there were some is all that is told."""
    return HIDDEN if text else ""


def _cells(cells: GpuCells) -> GpuCells:
    """All but the words of errors: that there is one is told."""
    status = cells.fabric_status if cells.fabric_status in (None, "Success") else HIDDEN
    if status == cells.fabric_status and not cells.fabric_health:
        return cells
    return replace(cells, fabric_status=status, fabric_health=HIDDEN if cells.fabric_health else cells.fabric_health)


def _unknown(reasons: Mapping[str, str]) -> dict[str, str]:
    return {what: _words(why) for what, why in reasons.items()}


# --- out ------------------------------------------------------------------------------------------------------------


def publish(
    fleet: Fleet, observation: Observation, ledger: Recollection, key: bytes, keys: Mapping[str, str]
) -> Published:
    """`key`: drawn for this document alone. `keys`: public ones, by name. Only nodes of the fleet are published."""
    names = [name for name in observation.nodes if name in fleet.nodes]
    records = ledger.nodes(records_needed(fleet, names))
    screen = Screen(sealing(key), *mentioned(fleet))
    return Published(
        format_version=PUBLISHED_FORMAT,
        tool_version=__version__,
        fleet=observation.fleet,
        spec_commit="" if fleet.source.dirty else fleet.source.commit,
        started_at=observation.started_at,
        finished_at=observation.finished_at,
        nodes={name: _published(fleet.nodes[name], observation.nodes[name], records, screen) for name in names},
        ledger=screen.name(ledger.id),
        bios=tuple(sorted(screen.bios)),
        labels=tuple(sorted(screen.labels)),
        taints=tuple(sorted(screen.taints)),
        known=tuple(ledger.known()),
        holds=tuple(map(screen.hold, ledger.holds())),
        rollouts={pool: screen.rollout(rollout) for pool, rollout in ledger.rollouts().items()},
        durations=tuple(ledger.durations(_DURATIONS)),
        keys=keys,
        insecure=observation.insecure,
        time_scale=observation.time_scale,
        control_plane={
            name if name in fleet.nodes else screen.name(name): up for name, up in observation.control_plane.items()
        },
    )


def sealing(key: bytes) -> Callable[[str], str]:
    """Names that are the same to a comparison get the same digest. One that is sealed already stays."""

    def name(value: str) -> str:
        if not value or value.startswith(SEALED):
            return value
        found = hmac.digest(key, normalise.text(value).encode(errors="replace"), "sha256").hex()
        return SEALED + found[:24]

    return name


def _published(desired: Desired, seen: Observed, records: Mapping[str, NodeRecord], screen: Screen) -> PublishedNode:
    record = records.get(desired.node) or NodeRecord(desired.node)
    paths = None if record.paths is None else tuple(sorted(record.paths))
    wanted = {path: screen.name(value) for path, value in own_names(desired).items()}
    return PublishedNode(screen.observed(seen), screen.record(record), wanted, paths)


def own_names(desired: Desired) -> dict[str, str]:
    """By value path, what the spec itself says a machine is called."""
    values = zip(OWN_NAMES, (desired.serial, desired.uuid, desired.hostname), strict=True)
    return {path: value for path, value in values if value}


def mentioned(fleet: Fleet) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """BIOS attributes, labels and keys of taints that the spec mentions of any node."""
    profiles = {node.profile.digest: node.profile for node in fleet.nodes.values()}.values()
    members = [profile.membership for profile in profiles if profile.membership is not None]
    return (
        frozenset(name for profile in profiles for name in profile.bios),
        frozenset(key for member in members for key in member.labels),
        frozenset(taint.key for member in members for taint in member.taints),
    )
