"""Rows of the table of signals: what a signal is read from, what follows from it, and what proves that it is gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, model_validator

from reconciler.spec.kinds.base import PositiveDuration
from reconciler.spec.kinds.remediation_policy import RungAction
from reconciler.strict_yaml.models import Checked, Matching, Model, Text


class Scope(StrEnum):
    """The part that a signal is evidence against."""

    GPU = "gpu"
    PORT = "port"
    DIMM = "dimm"
    DRIVE = "drive"
    PSU = "psu"
    FAN = "fan"
    NODE = "node"
    RACK = "rack"


class SignalClass(StrEnum):
    """The cause class of a signal."""

    TRANSIENT = "transient"  # the part recovers by itself
    PERSISTENT = "persistent"  # lasts until something is done; a reset or a boot may be enough
    TERMINAL = "terminal"  # lasts until a person replaces the part
    ENVIRONMENT = "environment"  # heat, power, coolant: mostly not of the node
    APPLICATION = "application"  # of the work on the node, of a setting or of how the node is built


class First(StrEnum):
    """The first action that follows from a signal."""

    ISOLATE = "isolate"
    DRAIN = "drain"
    REPORT = "report"


class Next(StrEnum):
    """The repair that follows once the node is out of service."""

    LADDER = "ladder"
    POWER = "power"
    PERSON = "person"


class Proof(StrEnum):
    """One proof that a signal is healed. There is none for time that has passed: silence is not healing."""

    FACT_CLEAR = "fact_clear"
    FACT_CLEAR_AFTER_NEW_BOOT = "fact_clear_after_new_boot"
    FACT_CLEAR_AFTER_RESET = "fact_clear_after_reset"  # of the GPUs, or a new boot, which resets them too
    GATE = "gate"
    NEW_SERIAL = "new_serial"


LASTING: Final = "host.links"  # the fact of signals whose `window` says for how long they have to be shown
EVENTS: Final = "bmc.events"
KERNEL_LOG: Final = "host.kernel_events"
RAISED: Final = "host.raised"  # signals that an extension judges
COUNTED: Final = (
    "host.counters",
    "host.gpu_counters",
    "host.nvlink_counters",
    "host.dcgm_counters",
    "host.daemon_counters",
)  # facts that are judged by how much they rise

# A text for the kernel log is looked for as it stands, so that no pattern can make a node or the loop run for long.
_KERNEL_TEXT = re.compile(r"[ -~]{6,200}")
_RANGE = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?")


def code_set(text: str) -> frozenset[int]:
    """Return the numbers of "8 11 37-41". Raise ValueError for anything else."""
    found: set[int] = set()
    for part in text.split():
        if not _RANGE.fullmatch(part):
            raise ValueError(f"{part!r} is neither a code nor a range like 37-41")
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ValueError(f"the range {part} ends before it begins")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


SignalName = Annotated[
    str, Matching(r"[a-z][a-z0-9_]*", "a name of signals; use lower-case letters, digits and '_', a letter first")
]
Unit = Annotated[
    str,
    Matching(
        r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}", "the name of a systemd unit, without .service: nvidia-fabricmanager"
    ),
]
Fact = Annotated[str, Matching(r"(host|bmc|member)\.[a-z_]+", "a fact like host.gpus, bmc.parts or member.conditions")]


_OUTSIDE = (Scope.PORT, Scope.PSU, Scope.FAN, Scope.RACK)
_LOGS = (EVENTS, "host.xids", KERNEL_LOG)


class SignalRow(Model):
    """One signal: its evidence, its consequence, and the proof that it is healed."""

    fact: Fact = Field(description="What it is read from: host.FIELD, bmc.FIELD or member.FIELD of an observation.")
    contains: Text | None = Field(
        default=None,
        description="What an entry of the BMC's log, or a line of the kernel log, holds: plain text, in upper or lower "
        "case. Absent: the code knows its evidence.",
    )
    counters: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="The counters of `fact` whose rise, together, is evidence from `threshold` on within `window`.",
    )
    scope: Scope = Field(description="The part that it is evidence against.")
    cause: SignalClass = Field(
        alias="class",
        description="transient: passes by itself; persistent: until something is done; terminal: until a person "
        "replaces the part; environment: heat, power, coolant; application: work, a setting, or how a node is built.",
    )
    reads: int = Field(default=2, ge=1, le=2, description="How many readings are evidence. 1: an event or a latch.")
    window: PositiveDuration | None = Field(
        default=None,
        description="How old an event of a log may be when it is first read, or the time that `threshold` counts in. "
        "Of host.links: for how long it has to be shown before it counts. Absent: since the last boot, or at once.",
    )
    threshold: float | None = Field(
        default=None, ge=0, description="The least value that is evidence, or the greatest that is none. Absent: any."
    )
    domains: tuple[Text, ...] | None = Field(
        default=None,
        min_length=1,
        description="Labels of the failure domains that may be its cause, with * and ?: many nodes of one that show it "
        "within ten minutes are an incident of the domain. Absent: every domain for class environment and for scope "
        "port, psu, fan and rack; none for others.",
    )
    peers: bool = Field(default=False, description="Whether it is judged against other parts of its kind only.")
    first: First = Field(description="isolate: at once; drain: as budget and brake allow; report: as drift.")
    next: Next | None = Field(
        default=None,
        description="ladder: every rung; power: a reboot or a power cycle; person: no rung, a part must be replaced. "
        "Absent for what is only reported.",
    )
    rungs: tuple[RungAction, ...] | None = Field(
        default=None,
        min_length=1,
        description="The rungs that may heal it, of those in the policy's ladder. Absent: all that `next` allows. Of a "
        "signal that is only reported: reset_bmc alone, as it disturbs no work.",
    )
    service: Unit | None = Field(
        default=None,
        description="The systemd unit whose restart may heal it: the rung restart_service is for it alone.",
    )
    healed_by: tuple[Proof, ...] = Field(
        min_length=1, description="What proves together that it is healed: never that time has passed."
    )
    because: Text = Field(description="Why this follows from it.")
    source: Text = Field(description="Where its meaning is documented.")

    @property
    def may_be_caused_by(self) -> tuple[str, ...]:
        """Labels, as patterns, of the failure domains that may cause the signal; () = it is the node's own alone.

        Lines of logs about a part stay the node's own. What is reported only has no ladder that it could be spared
        from; of links that would be congestion, too.
        """
        if self.cause is SignalClass.ENVIRONMENT:
            return self.domains or ("*",)
        own = self.cause in (SignalClass.TERMINAL, SignalClass.APPLICATION) or self.fact in _LOGS
        if own or self.first is First.REPORT:
            return ()
        return self.domains or (("*",) if self.scope in _OUTSIDE else ())

    @model_validator(mode="after")
    def _check_consequence(self) -> SignalRow:
        if (self.first is First.REPORT) != (self.next is None):
            raise ValueError("a signal that is only reported has no `next`, and any other has one")
        if self.cause is SignalClass.TERMINAL and (
            self.next is not Next.PERSON or Proof.NEW_SERIAL not in self.healed_by
        ):
            raise ValueError("a terminal signal has `next: person` and is healed by new_serial: no restart heals it")
        if self.cause is SignalClass.APPLICATION and self.first is not First.REPORT:
            raise ValueError("a signal of class application is only reported: no node is treated for its work (K1)")
        if self.cause is SignalClass.TRANSIENT and self.first is First.ISOLATE:
            raise ValueError("a transient signal isolates no node")
        if self.domains is not None and self.cause in (SignalClass.TERMINAL, SignalClass.APPLICATION):
            raise ValueError("a terminal signal, or one of an application, is the node's own: it has no `domains`")
        inside = self.scope is Scope.GPU and self.cause is not SignalClass.ENVIRONMENT
        if inside and not all(label.startswith("nvlink") for label in self.domains or ()):
            raise ValueError("a GPU's fault is its node's own: its `domains` are NVLink's alone, as in nvlink*")
        if self.peers and self.first is First.ISOLATE:
            raise ValueError("a signal that is judged against peers isolates no node")
        if self.first is not First.REPORT and Proof.GATE not in self.healed_by:
            raise ValueError("a signal that takes a node out of service is healed by gate, too (K2)")
        return self

    @model_validator(mode="after")
    def _check_evidence(self) -> SignalRow:
        if self.contains is not None and self.fact == KERNEL_LOG:
            self._check_kernel_text(self.contains)
        elif self.contains is not None and (self.fact != EVENTS or self.window is None):
            raise ValueError(
                f"`contains` is of fact {KERNEL_LOG}, or of fact {EVENTS} with a window: a BMC's log is never cleared"
            )
        if self.fact == EVENTS and self.next in (Next.LADDER, Next.POWER):
            raise ValueError(
                f"a signal of fact {EVENTS} that takes a node out has `next: person`: no rung takes an "
                "entry out of a log"
            )
        if (self.counters is not None) != (self.fact in COUNTED):
            raise ValueError(f"`counters` are of the facts {', '.join(COUNTED)}, which have no other evidence")
        if self.counters is not None and (self.window is None or not self.threshold):
            raise ValueError("a signal of counters has a window, and a threshold above 0 for their rise in it")
        return self

    def _check_kernel_text(self, text: str) -> None:
        if not _KERNEL_TEXT.fullmatch(text):
            raise ValueError(f"`contains` of fact {KERNEL_LOG} is 6 to 200 printable characters of ASCII on one line")
        if self.window is not None:
            raise ValueError(f"a text of fact {KERNEL_LOG} has no window: the log of this boot is read as a whole")
        if not {Proof.FACT_CLEAR_AFTER_NEW_BOOT, Proof.NEW_SERIAL} & {*self.healed_by}:
            raise ValueError(
                f"a text of fact {KERNEL_LOG} is healed by fact_clear_after_new_boot or new_serial: lines rotate away"
            )

    @model_validator(mode="after")
    def _check_rungs(self) -> SignalRow:
        if self.first is First.REPORT and self.rungs == (RungAction.RESET_BMC,):
            return self  # it disturbs no work
        if RungAction.RESET_BMC in (self.rungs or ()):
            raise ValueError("the rung reset_bmc is for a signal of the BMC that is only reported, and alone there")
        if self.rungs is not None and self.next not in (Next.LADDER, Next.POWER):
            raise ValueError("`rungs` are for a signal with `next: ladder` or `next: power`")
        if self.service is not None and self.next not in (Next.LADDER, Next.POWER):
            raise ValueError("`service` is for a signal with `next: ladder` or `next: power`")
        if (RungAction.RESTART_SERVICE in (self.rungs or ())) != bool(self.rungs and self.service):
            raise ValueError("`rungs` and `service` belong together: restart_service restarts the unit of `service`")
        if self.rungs is not None and self.next is Next.POWER and RungAction.REIMAGE in self.rungs:
            raise ValueError("a signal with `next: power` has no rung reimage: wiping a disk brings no part back")
        return self


class CodeList(Model):
    """Codes of the kernel log, all of one meaning."""

    codes: Annotated[str, Checked(code_set)] = Field(description="Numbers and ranges: 8 11 37-41.")
    because: Text = Field(description="Why they are no evidence, or are.")
    source: Text = Field(description="Where their meaning is documented.")


class CodeLists(Model):
    """Codes of XID and SXid lines that are evidence of broken hardware, or are none. A code in no list is evidence."""

    application: CodeList = Field(description="XIDs that are no evidence.")
    reset: CodeList = Field(description="XIDs whose remedy is a reset of the GPU.")
    link_non_fatal: CodeList = Field(description="XIDs of NVLink 5: only reported where the line says Nonfatal.")
    switch_corrected: CodeList = Field(description="SXids that are no evidence unless the line calls them fatal.")
    switch_non_fatal: CodeList = Field(description="SXids that are no evidence where the line calls them non-fatal.")
    switch_not_harmless: CodeList = Field(description="SXids that are evidence, whatever the line calls them.")


class SignalTable(Model):
    """The table of signals."""

    signals: Mapping[SignalName, SignalRow] = Field(
        description="Rows by the name of the signal. A name that ends in '_' is for all signals that begin with it."
    )
    codes: CodeLists = Field(description="What codes of the kernel log mean.")
