"""The acceptance gate as converge uses it; converge/gate.py implements it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from reconciler.gate.fabric.partners import NoPartner
from reconciler.model.desired import Desired
from reconciler.model.gate import BootProof, Certificate, ComponentsProof, GateJudgement
from reconciler.model.observed import Observed
from reconciler.model.ports import Bmc, Clock, Host
from reconciler.model.soak_progress import SoakProgress


@dataclass(frozen=True, slots=True)
class SoakRun:
    """The soak of a node that is meant. `resumed`: it was begun by a reconciler that ended before the soak did."""

    id: str
    resumed: bool = False
    step: Callable[[str], None] = lambda _: None  # tells whoever watches how far it is
    note: Callable[[SoakProgress], None] = lambda _: None  # keeps how far it is, after each look that found no bad sign


@dataclass(frozen=True, slots=True)
class TakenPartner:
    """A node that is held for the gate of another. `certified`: its failures count; `near`: behind the same leaf."""

    desired: Desired
    observed: Observed
    host: Host
    near: bool
    certified: bool

    @property
    def name(self) -> str:
        return self.desired.node


class Partners(Protocol):
    """The partners that one gate takes for the tests of its node."""

    async def take(self, *, near: bool, avoid: Collection[str], within: str = "") -> TakenPartner | NoPartner:
        """Hold a partner, charged to the budget if it serves, behind the node's own leaf or another one.

        `within`: the kind of failure domain, such as "rack", that it shares with the node. Waits for one that can be
        had soon.
        """

    async def free(self, partner: TakenPartner) -> None:
        """End the hold. A partner that was taken out of service for it serves again."""

    async def recover(self, names: Collection[str]) -> None:
        """Give back those of these nodes that a run which died held for this gate."""

    def tell(self, text: str) -> None:
        """Tell whoever watches what the gate does."""


class SharedOutlets(Protocol):
    """The other nodes that hang on the outlets of one, for the attempt that cuts it off.

    Leaving the context gives all back: a node that was shut down boots and keeps its mark until its gate has passed,
    every other one serves as before.
    """

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None: ...

    async def gather(self) -> str:
        """Take all of them out of service, in the budget together, and drain them; return why that can't be now."""

    @property
    def disturbed(self) -> bool:
        """Say whether one that served was taken out of service, and was not shut down yet."""

    async def objection(self) -> str:
        """Look at the node and at all of them anew; return what speaks against the cut, "" if nothing does."""

    async def shut_down(self) -> str:
        """Journal for each that it is cut off, and shut it down; return why that can't be."""

    def bar(self) -> str:
        """Return why nobody may be cut off any more: all is stopped, or the spec says other things of the outlets."""

    async def answering(self) -> str:
        """Return one of them whose BMC answers; "" if none does."""

    async def come_back(self, *, cut: bool) -> None:
        """Switch on those that were shut down, once their BMCs answer, wait for them to boot, and journal it.

        `cut`: the power was taken, as their silence has proved.
        """


class GateRunner(Protocol):
    async def run(
        self,
        desired: Desired,
        host: Host,
        observed: Observed,
        clock: Clock,
        left_out: Collection[str] = (),
        soak: SoakRun | None = None,
        partners: Partners | None = None,
    ) -> Certificate:
        """Run the acceptance tests on the host. A test that can't run is a result in the certificate, no exception.

        `left_out`: names of the tests that are left out. `soak`: without it, the soak is left out, too.
        `partners`: without it, tests with partners can't be judged. Raises DriverError when the host is lost.
        """

    def judge(self, certificate: Certificate, desired: Desired, observed: Observed, clock: Clock) -> GateJudgement:
        """Judge whether this certificate admits the node as observed now."""

    def trust(self, desired: Desired, observed: Observed) -> GateJudgement:
        """Judge whether what runs on the node is what was signed."""

    async def attest(self, desired: Desired, host: Host, observed: Observed, clock: Clock) -> BootProof:
        """Ask the host's TPM what it booted, and judge the answer by what the spec declares.

        Raises DriverError when the host is lost.
        """

    async def measure(
        self, desired: Desired, bmc: Bmc, observed: Observed, clock: Clock, step: Callable[[str], None]
    ) -> ComponentsProof:
        """Ask the components that the spec declares what they run, and judge their answers. `step` tells how far it is.

        What is not proved is a reason of the judgement, no exception.
        """
