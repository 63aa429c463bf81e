"""A ledger of some months, written through its roles by a list of steps: what a pruned one is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from reconciler.drivers.ledger import SqlLedger
from reconciler.health.ladder import REMEDIATION
from reconciler.model.install_progress import InstallAttempt, digest_of
from reconciler.model.measurements import Attestation
from reconciler.model.period_report import ServiceStatus
from reconciler.model.records import ISOLATED
from reconciler.model.status import NodeStatus
from tests.ledger.test_ledger import certificate

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NODES = ("a", "b", "c")
KINDS = (
    "worked", "worked", "worked", "left", "drifted", "certified", "held", "identified", "attested", "installed",
    "noted", "leased", "erased", "status",
)  # fmt: skip
Step = tuple[str, str, int, int]  # kind, node, variant, hours since the step before it
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(NODES), st.integers(0, 3), st.integers(1, 24 * 20)),
    min_size=20,
    max_size=40,
)
_ACTIONS = (
    ("set_bios", "bios.X"),
    ("soft_restart", REMEDIATION),
    ("mark", f"{ISOLATED}health.xid_79"),
    ("run_gate", "gate"),
)
_OUTCOMES = ("done", "transient", "permanent", "ambiguous")


class Life:
    """Writes steps one after the other. `now`: when the last one was."""

    def __init__(self, ledger: SqlLedger) -> None:
        self.ledger, self.now = ledger, BEGIN
        self._token = ledger.acquire("demo", "runner", 1e9, BEGIN).token

    def live(self, steps: Sequence[Step]) -> None:
        for kind, node, variant, hours in steps:
            self.now += timedelta(hours=hours)
            getattr(self, f"_{kind}")(node, variant)

    def _begin(self, node: str, variant: int, action: str = "", cause: str = "") -> int:
        name, why = _ACTIONS[variant]
        return self.ledger.begin(
            f"run-{variant}", node, action or name, "", cause or why, {"boot_id": "b"}, self._token, self.now
        )

    def _worked(self, node: str, variant: int) -> None:
        attempt = self._begin(node, variant)
        self.ledger.amend(attempt, {"task": f"/tasks/{variant}"}, self.now)
        if variant == 2:
            self.ledger.resume(attempt, "run-9", self._token, self.now)
        if variant == 3:
            self.ledger.save_certificate(certificate(node, self.now))
        self.ledger.finish(attempt, _OUTCOMES[variant], "as it was", self.now + timedelta(minutes=5))

    def _left(self, node: str, variant: int) -> None:
        if variant == 0:
            self.ledger.amend(self._begin(node, 0), {"task": "/tasks/9"}, self.now)

    def _erased(self, node: str, variant: int) -> None:
        attempt = self._begin(node, 0, "erase", "decommission")
        record = {"serial": f"S{variant}", "ended_at": str(self.now)}
        self.ledger.amend(attempt, {"erasure": record}, self.now)
        self.ledger.finish(attempt, "done", "", self.now)

    def _drifted(self, node: str, variant: int) -> None:
        items = [(node, f"health.sign_{at}", "drifted", 0, 1) for at in range(variant)]
        self.ledger.record_drift("run-1", items, [node], self.now)

    def _certified(self, node: str, variant: int) -> None:
        made = certificate(node, self.now)
        binding = replace(made.binding, image_sha256=f"{variant:064x}")
        self.ledger.save_certificate(replace(made, binding=binding))

    def _held(self, node: str, variant: int) -> None:
        if variant % 2:
            self.ledger.release(node, "ops", self.now)
        else:
            self.ledger.hold(node, "tracing a fault", "ops", None, self.now)

    def _identified(self, node: str, variant: int) -> None:
        self.ledger.remember_identities({node: (f"S{variant}", None)}, self.now)

    def _attested(self, node: str, variant: int) -> None:
        self.ledger.bind_endorsement(node, f"e-{node}-{variant // 2}", self.now)
        self.ledger.save_attestation(
            node, Attestation(f"r{variant}", self.now, "start", f"boot-{variant}"), {"pcr": variant}
        )

    def _installed(self, node: str, variant: int) -> None:
        begun = InstallAttempt(
            digest_of(f"t{node}{variant}"), node, "{}", "", self.now, token="t", host_key=f"k{variant}"
        )
        self.ledger.save_install(begun, self.now, "its installer was fetched")

    def _noted(self, node: str, variant: int) -> None:
        self.ledger.note(node, ("adopt", "fabric", "restore", "retracted")[variant], "told", self.now)

    def _leased(self, node: str, variant: int) -> None:
        lease = self.ledger.acquire(f"bmc/{node}", f"other-{variant}", 60, self.now)
        self.ledger.acquire(f"bmc/{node}", "a third", 60, self.now + timedelta(minutes=5))
        self.ledger.start_run(f"run {lease.token}", "run", f"{variant}", "", self.now)
        self.ledger.end_run(f"run {lease.token}", 0, "stopped", self.now)

    def _status(self, node: str, variant: int) -> None:
        status = (NodeStatus.CONVERGED, NodeStatus.WAITING, NodeStatus.ACTING, NodeStatus.HELD)[variant]
        told = {node: ServiceStatus("train", status, variant > 0, "", "")}
        self.ledger.record_service_status(told, self.now, within=timedelta(days=30), whole=False)


def remembered(ledger: SqlLedger, since: datetime, until: datetime) -> Mapping[str, Any]:
    """Return all that decisions go by, and what people are told of the time since then."""
    records = ledger.nodes(NODES)
    return {
        "records": records,
        "known": ledger.known(),
        "holds": ledger.holds(),
        "unfinished": ledger.unfinished(),
        "before": [ledger.before(number) for number, *_ in ledger.unfinished()],
        "erasures": {node: ledger.erasures(node) for node in NODES},
        "endorsements": {node: ledger.refused_endorsement(node) for node in NODES},
        "first": {node: [ledger.first_certificate(node, f"{at:064x}") for at in range(4)] for node in NODES},
        "installs": {node: ledger.open_install(node) for node in NODES},
        "commit": ledger.last_commit(),
        "statuses": ledger.last_statuses(),
        "past": ledger.past(since, until),
        "illness": ledger.illness(since, until),
        "history": {node: [one for one in ledger.history(node, 10_000) if one.at >= since] for node in NODES},
        "drift": {node: ledger.open_drift(node) for node in NODES},
    }
