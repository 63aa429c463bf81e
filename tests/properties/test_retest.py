"""Invariant 6 over composed certificates: what was done to a node is always followed by the tests that it costs.

The oracle below keeps for each test what it measured last and whether anything was done since that it depends on. It
knows the table as it was drawn, and nothing of how certificates are bound, composed or read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.gate import certificate as c
from reconciler.gate.certificate import binding_of, compose, judge
from reconciler.health.ladder import REMEDIATION
from reconciler.model.desired import Acceptance, Desired, GatePhase, GateTest, Revalidation
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.observed import Answered, FirmwareItem, Observed, Part
from reconciler.model.records import Attempt, NodeRecord
from reconciler.planner.node.conditions import GATE
from reconciler.planner.node.evaluate import evaluate
from reconciler.planner.node.retest import left_out_tests, voided_since_certificate
from tests import builders as b

NAMES = ("one", "two", "three")
ROWS = (
    "bmc",
    "bios",
    "nic0",
    "set_bios",
    "power_cycle",
    "soft_restart",
    "configure_host",
    "update_firmware",
    "dimm_exchanged",
    "gpu_exchanged",
    "driver_changed",
    "fabric_changed",
)
STEPS = (
    "gate", "gate", "gate fails", "flash bmc", "flash bios", "flash nic0", "flashed by hand", "settings", "power_cycle",
    "soft_restart", "configure_host", "reimage", "other GPU", "other image", "other DIMM", "repaired DIMM", "repair",
    "other driver", "moved", "two days", "two days", "another test", "clock back",
)  # fmt: skip
JUMPS = {"two days": timedelta(days=2), "clock back": timedelta(minutes=-37, microseconds=-1)}  # no time comes twice


def dimms(second: str) -> tuple[Part, ...]:
    return Part("dimm", "1", None, "D1"), Part("dimm", "2", None, second)


@st.composite
def profiles(draw: st.DrawFn) -> Acceptance:
    after = draw(st.dictionaries(st.sampled_from(ROWS), st.lists(st.sampled_from(NAMES), unique=True).map(tuple)))
    tests = tuple(
        GateTest(name, "command", {"run": "x", "metrics": "x"}, (), 60.0, validity_s=draw(st.sampled_from([None, 1e5])))
        for name in NAMES
    )
    wish = draw(st.sampled_from([None, Revalidation(1e5), Revalidation(1e5, drain=True)]))
    return Acceptance("drawn", (GatePhase("all", tests),), draw(st.sampled_from([None, 3e5])), after, wish)


@dataclass
class Node:
    """A node, what the ledger knows of it, and what each test of it is worth."""

    wanted: Desired
    seen: Observed = field(default_factory=lambda: b.observed(inventory=b.inventory(parts=dimms("D2"))))
    record: NodeRecord = field(default_factory=lambda: NodeRecord("gpu-a001"))
    now: datetime = b.NOW
    passed: dict[str, datetime | None] = field(default_factory=lambda: dict.fromkeys(NAMES))  # None: it proves nothing

    @property
    def acceptance(self) -> Acceptance:
        assert self.wanted.profile.acceptance is not None
        return self.wanted.profile.acceptance

    def voids(self, *rows: str, otherwise: tuple[str, ...] = NAMES) -> None:
        """The first of these rows that the profile has says what is to be run again."""
        tests = next((self.acceptance.after[row] for row in rows if row in self.acceptance.after), otherwise)
        self.passed |= dict.fromkeys(tests)

    def attempt(self, action: str, target: str = "", cause: str = "drift") -> None:
        attempt = Attempt(action, target, cause, self.now, "done", ended_at=self.now)
        newer = None if self.record.newer is None else self.record.newer + 1
        self.record = replace(self.record, attempts=(*self.record.attempts, attempt), newer=newer)

    def flash(self, component: str) -> None:
        self.voids(component, "update_firmware")
        inventory: Any = self.seen.inventory
        firmware = {**inventory.value.firmware, component.upper(): FirmwareItem(f"{self.now:%j.%H.%M.%f}")}
        self.seen = replace(self.seen, inventory=replace(inventory, value=replace(inventory.value, firmware=firmware)))

    def change_host(self, **values: Any) -> None:
        host: Any = self.seen.host
        self.seen = replace(self.seen, host=replace(host, value=replace(host.value, **values)))

    def exchange_dimm(self, how: str) -> None:
        if how == "repaired":
            self.attempt("drain", cause="health.dimm_ue")
        self.voids("dimm_exchanged")
        inventory: Any = self.seen.inventory
        value = replace(inventory.value, parts=dimms(f"{self.now}"))
        self.seen = replace(self.seen, inventory=replace(inventory, value=value))

    def gate(self, verdict: Verdict) -> None:
        left_out = left_out_tests(self.wanted, self.seen, self.record, self.now)
        for name in left_out:
            assert self.is_good(name), f"{name} is left out, and proves nothing"
        binding = binding_of(self.wanted, self.seen, c.tests_digest(self.acceptance))
        assert isinstance(binding, Binding)
        ran = [name for name in NAMES if name not in left_out]
        results = tuple(TestResult(name, "command", verdict, (), {"x": 1.0}) for name in ran)
        made = Certificate("1.0", "gpu-a001", self.now, binding, results)
        self.passed |= dict.fromkeys(ran, self.now if verdict is Verdict.PASS else None)
        self.record = replace(self.record, certificate=compose(made, self.record.certificate, left_out), newer=0)

    def is_good(self, name: str) -> bool:
        at = self.passed[name]
        test = next(test for test in self.acceptance.tests if test.name == name)
        valid_s = self.acceptance.validity_s if test.validity_s is None else test.validity_s
        return at is not None and (valid_s is None or self.now - at <= timedelta(seconds=valid_s))

    def step(self, what: str) -> None:
        self.now += JUMPS.get(what, timedelta(minutes=1))
        match what.split():
            case ["gate", *fails]:
                self.gate(Verdict.FAIL if fails else Verdict.PASS)
            case ["flash", component]:
                self.attempt("update_firmware", component)
                self.flash(component)
            case ["flashed", *_]:
                self.flash("nic0")
            case ["settings"]:
                inventory: Any = self.seen.inventory
                bios = {**inventory.value.bios, "NumaNodesPerSocket": f"{self.now}"}
                self.seen = replace(self.seen, inventory=replace(inventory, value=replace(inventory.value, bios=bios)))
                self.voids("set_bios")
            case ["power_cycle" | "soft_restart" | "configure_host" as action]:
                treats = action != "configure_host"
                self.attempt(action, cause=REMEDIATION if treats else "drift")
                self.voids(action, otherwise=NAMES if treats else ())
            case ["reimage" as action]:
                self.attempt(action)
                self.voids()
            case ["other", "GPU" | "image" | "driver" as other]:
                host: Any = self.seen.host
                image = replace(host.value.image, sha256=f"{self.now}")
                gpus, driver = (b.gpu(0), b.gpu(1, serial=f"{self.now}")), f"{self.now}"
                self.change_host(
                    **{"GPU": {"gpus": gpus}, "image": {"image": image}, "driver": {"driver": driver}}[other]
                )
                self.voids(*{"GPU": ["gpu_exchanged"], "image": [], "driver": ["driver_changed"]}[other])
            case ["moved"]:
                self.wanted = replace(self.wanted, domains={"rack": f"{self.now}"})
                self.voids("fabric_changed", otherwise=())
            case [how, "DIMM"]:
                self.exchange_dimm(how)
            case ["repair"]:
                self.attempt("drain", cause="health.leak")
                self.voids()
            case ["another", "test"]:
                first, *rest = self.acceptance.tests
                test = replace(first, args={**first.args, "run": f"{self.now}"})
                profile = replace(self.acceptance, phases=(GatePhase("all", (test, *rest)),))
                self.wanted = replace(self.wanted, profile=b.profile(acceptance=profile))
                self.passed[first.name] = None


@settings(max_examples=150)
@given(profiles(), st.lists(st.sampled_from(STEPS), min_size=1, max_size=14))
def test_never_admit_without_gate_and_trust(profile: Acceptance, steps: list[str]) -> None:
    """Invariant 6: a gate that is open means that each test was passed after whatever it depends on."""
    node = Node(b.node(profile=b.profile(acceptance=profile)))
    node.gate(Verdict.PASS)
    for what in steps:
        node.step(what)
        binding = binding_of(node.wanted, node.seen, c.tests_digest(node.acceptance))
        assert isinstance(binding, Binding)
        judged = judge(node.record.certificate, node.acceptance, binding, node.now)
        done = voided_since_certificate(node.record, node.acceptance)
        good = {name for name in NAMES if node.is_good(name)}
        assert good >= set(NAMES) - judged.by_test.keys() - done.keys(), what
        assert judged.valid is (not judged.by_test)
        context = replace(b.CONTEXT, now=node.now, _profiles={})
        seen = replace(node.seen, member=Answered(b.NOW, b.member(mark=b.our_mark(), pods=())))
        state = evaluate(node.wanted, seen, (), node.record, context)
        if GATE in state.true:
            assert good == set(NAMES), what
        if what == "gate":
            assert good == set(NAMES)
            assert judged.valid, "what was tested is valid"
            assert not done
