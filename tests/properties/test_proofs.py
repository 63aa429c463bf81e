"""A state whose row asks for more than that it is gone: its node is admitted after its proof, and after nothing less.

And once the proof has come, and what it is read from is read, the node does come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from reconciler.health.table import health_table
from reconciler.model.observed import Observed
from reconciler.model.own_health import DiskHealth
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Health
from tests import builders as b
from tests.planner.ill_states import LEFT, MINUTE, NODE, STATES, acts, dimm, drained, gpus, look, noted, nvme

STEPS: Final = ("shown", "cleared", "unread", "boot", "other part", "release", "gate", "wait")
# Which of them speak against a part, as it is told by its serial number.
OF_PARTS: Final[dict[str, Any]] = {
    "dimm_failed": lambda serial, ill: {"parts": (dimm(serial, Health.CRITICAL if ill else Health.OK), dimm("B1"))},
    "nvme_critical": lambda serial, ill: {"nvme": (nvme(serial, 4 if ill else 0),)},
    "disk_failing": lambda serial, ill: {"disks": (DiskHealth("sda", serial, "MK", not ill),)},
    "row_remap_failed": lambda serial, ill: {"gpus": gpus(serial, remap_failed=ill)},
}
READ_ELSEWHERE: Final = ("nvme_critical", "row_remap_failed", "ecc")  # declared parts: not read, they admit nobody
BY_BOOT: Final = ("edac_ue", "ras_ue", "dcgm_failure", "amd_ecc", "ecc")


@dataclass
class Node:
    """A node that was drained for a state, and what has happened to it since, told apart from the planner."""

    name: str
    record: NodeRecord
    at: datetime = LEFT
    boot: int = 1
    part: int = 1
    shows: str = "shown"
    drained_for: bool = True  # nobody has released it since
    owed: tuple[int, int] | None = (1, 1)  # boot and part that were seen ill last; None: nothing is owed
    readings: int = 0  # in a row that showed it, since a person released the node
    seen: Observed = field(init=False)

    def __post_init__(self) -> None:
        self._look()

    def step(self, what: str) -> None:
        self.at += MINUTE
        match what:
            case "shown" | "cleared" | "unread":
                self.shows = what
            case "boot":
                self.boot += 1
            case "other part":
                self.part, self.shows = self.part + 1, "cleared"
            case "release":
                self.record = replace(self.record, released_at=self.at, after_release=0)
                self.drained_for, self.owed, self.readings = False, None, 0
                self.at += MINUTE
            case "gate" if acts(self.record, self.seen)[:1] == ["run_gate"]:
                passed = replace(b.certificate(NODE, self.seen), issued_at=self.at)
                self.record = replace(self.record, certificate=passed, newer=0)
        self._look()

    def _look(self) -> None:
        shows: dict[str, Any] = dict(STATES[self.name].unread)
        if self.shows != "unread" and self.name in OF_PARTS:
            shows = OF_PARTS[self.name](f"P{self.part}", self.shows == "shown")
        elif self.shows != "unread":
            shows = dict(STATES[self.name].ill if self.shows == "shown" else STATES[self.name].well)
        self.seen = look(self.name, shows, self.at, boot=f"b{self.boot}")
        if self.shows == "shown":
            self.readings += 1
            latched = health_table().rule_of(self.name).latched
            if self.drained_for or self.owed or latched or self.readings > 1:
                self.owed = self.boot, self.part
        else:
            self.readings = 0
        self.record = noted(self.record, self.seen)
        if self.shows == "cleared" and self.is_proved:
            self.owed = None

    @property
    def is_proved(self) -> bool:
        if self.owed is None:
            return True
        boot, part = self.owed
        return self.boot > boot if self.name in BY_BOOT else self.part > part

    @property
    def may_serve(self) -> bool:
        if self.shows == "unread":
            unknown = self.drained_for or self.owed is not None or self.name in READ_ELSEWHERE
            return not unknown
        return self.shows == "cleared" and self.is_proved


@given(name=st.sampled_from([*OF_PARTS, *BY_BOOT]), steps=st.lists(st.sampled_from(STEPS), max_size=12))
def test_admitted_after_its_proof_and_after_nothing_less(name: str, steps: list[str]) -> None:
    first: dict[str, Any] = {} if name not in OF_PARTS else OF_PARTS[name]("P1", False)
    well = look(name, first or STATES[name].well, b.NOW, out=False)
    node = Node(name, replace(drained(name), certificate=b.certificate(NODE, well)))
    for what in steps:
        node.step(what)
        plan = acts(node.record, node.seen)
        comes_back = bool({"run_gate", "admit"} & set(plan[:1]))
        assert comes_back is node.may_serve, (what, node.shows, node.owed, plan, dict(node.record.silent_since))
        assert not comes_back or plan in (["run_gate", "admit"], ["admit"])
