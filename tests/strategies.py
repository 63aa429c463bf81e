"""Hypothesis strategies: nodes that differ from their spec in every way at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st

from reconciler.gate.asked import asked_tests
from reconciler.model import desired as d
from reconciler.model import observed as o
from reconciler.model.records import Applied, Attempt, Hold, NodeRecord
from reconciler.model.vocab import BootPhase, NodeState, Power, UnknownReason
from tests import builders as b

REASONS = st.sampled_from(
    [UnknownReason.UNREACHABLE, UnknownReason.AUTH, UnknownReason.TIMEOUT, UnknownReason.MALFORMED]
)


def silents() -> st.SearchStrategy[o.Silent]:
    return st.builds(lambda reason: o.Silent(b.NOW, reason), REASONS)


@st.composite
def wanted_nodes(draw: st.DrawFn) -> d.Desired:
    changes: dict[str, Any] = {
        "gpu": draw(st.sampled_from([d.DesiredGpu(None), d.DesiredGpu({"3g.40gb": 2}), None])),
        "firmware": tuple(draw(st.lists(st.sampled_from(b.FIRMWARE), unique=True, max_size=3))),
        "acceptance": draw(st.sampled_from([b.ACCEPTANCE, b.ACCEPTANCE, None])),
        "remediation": draw(st.sampled_from([b.REMEDIATION, None])),
        "image": draw(st.sampled_from([b.IMAGE, b.MEASURED, None])),
        "measurements": b.PLATFORM,
    }
    return b.node(profile=b.profile(**changes))


def one_of(draw: st.DrawFn, *values: Any, tidy: bool) -> Any:
    """One of the values; a tidy node reports everything, so that whole plans are met as often as unknowns are."""
    return draw(st.sampled_from([value for value in values if value is not None] if tidy else values))


@st.composite
def hosts(draw: st.DrawFn, tidy: bool) -> o.HostFacts:
    maybe = partial(one_of, draw, tidy=tidy)
    image = b.facts().image
    assert image is not None
    return b.facts(
        hostname=maybe("gpu-a001", "localhost", None),
        image=maybe(
            image, image, replace(image, version="2026.10.2", sha256="cd" * 32), replace(image, sha256="ee" * 32), None
        ),
        gpus=maybe((b.gpu(0), b.gpu(1)), (b.gpu(0), b.gpu(1, lost=True)), (b.gpu(0, mig_current=True), b.gpu(1)), None),
        xids=maybe((), (), (o.Xid(79, "0", 1),), (o.Xid(31, "0", 9),), None),
        sysctls=maybe({"vm.swappiness": "1"}, {"vm.swappiness": "60"}, {}, None),
        secure_boot=maybe(True, False, None),
        driver=maybe("570.124.06", "550.0"),
    )


@st.composite
def members(draw: st.DrawFn, tidy: bool) -> o.Member | None:
    maybe = partial(one_of, draw, tidy=tidy)
    if draw(st.integers(0, 9)) == 0:
        return None
    mark = draw(st.sampled_from([None, None, b.our_mark(), b.our_mark(cordoned=False), b.our_mark(ledger="another")]))
    return b.member(
        mark=mark,
        ready=maybe(True, True, False, None),
        labels=maybe({"workload": "training"}, {}),
        pods=maybe((), (b.pod(),), (b.pod(owner_kind="DaemonSet", evictable=False),)),
        unschedulable=mark is not None or maybe(False, False, False, True),
    )


@st.composite
def seen_nodes(draw: st.DrawFn) -> o.Observed:
    tidy = draw(st.booleans())
    maybe = partial(one_of, draw, tidy=tidy)
    power = maybe(Power.ON, Power.ON, Power.ON, Power.OFF, None)
    phase = (
        BootPhase.OFF if power is Power.OFF else maybe(BootPhase.OS_RUNNING, BootPhase.OS_RUNNING, BootPhase.POST, None)
    )
    hot: Any = b.hot(power=power, boot_phase=phase, serial=maybe(*["SN-gpu-a001"] * 3, "OTHER", None),
                     pending_bios=maybe({}, {}, {"SriovGlobalEnable": "Enabled"}))  # fmt: skip
    inventory: Any = b.inventory(
        bios=maybe(
            {"SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": "NPS1"}, {"SriovGlobalEnable": "Disabled"}, None
        ),
        firmware={item.inventory_id: o.FirmwareItem(maybe("2.0", "1.0")) for item in b.FIRMWARE},
        secure_boot=maybe(True, True, False, None),
    )
    host: Any = draw(hosts(tidy))
    if power is Power.OFF or phase is BootPhase.POST:
        host = o.Silent(b.NOW, UnknownReason.EXPLAINED, "powered off")
    found = {"hot": hot, "inventory": inventory, "host": host, "member": draw(members(tidy))}
    for source in found:
        if not tidy and draw(st.integers(0, 5)) == 0:
            found[source] = draw(silents())
    return b.observed(**found)


@st.composite
def records(draw: st.DrawFn, wanted: d.Desired) -> NodeRecord:
    """A ledger row; the certificate, where there is one, is that of the healthy node."""
    certificate, applied = None, {}
    if wanted.profile.acceptance is not None and draw(st.booleans()):
        certificate = b.certificate(wanted, b.observed(), x=draw(st.sampled_from([2.0, 2.0, 0.5])))
        # The bar has been raised since, or it has not.
        texts = (*asked_tests(wanted.profile.acceptance).values(), "dcgmi-diag level=2, x >= 0.1")
        applied = {"gate.tests.dcgm": Applied(draw(st.sampled_from(texts)), "", "", b.NOW)}
    ago = timedelta(minutes=draw(st.integers(1, 600)))
    attempts = tuple(
        Attempt(action, target, cause, b.NOW - ago, outcome)
        for action, target, cause, outcome in draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["power_cycle", "reimage", "update_firmware", "drain"]),
                    st.sampled_from(["", "bmc"]),
                    st.sampled_from(["remediation", "drift"]),
                    st.sampled_from(["done", "permanent", "started", "transient"]),
                ),
                max_size=4,
            )
        )
    )
    silent = {"ssh": b.NOW - timedelta(hours=1), "not_ready": b.NOW - timedelta(hours=1)} if draw(st.booleans()) else {}
    return NodeRecord(
        wanted.node,
        serial=wanted.serial,
        applied=applied,
        certificate=certificate,
        attempts=attempts,
        silent_since=silent,
        attestation=draw(st.sampled_from([None, b.attestation(wanted), b.attestation(wanted, "another boot")])),
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[d.Desired, o.Observed, NodeRecord]:
    wanted = draw(wanted_nodes())
    return wanted, draw(seen_nodes()), draw(records(wanted))


def holds() -> st.SearchStrategy[Hold]:
    return st.builds(
        lambda subject, until: Hold(1, subject, "looking at it", "ops", b.NOW, until),
        st.sampled_from(["gpu-a001", "pool/train"]),
        st.sampled_from([None, b.NOW + timedelta(hours=1)]),
    )


STATES = st.sampled_from([NodeState.QUARANTINED, NodeState.RETIRED])
