"""The `run` use case: follow a spec, run the loop, and serve its API and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.app.clocks import RealClock
from reconciler.app.day_summer import DaySummer
from reconciler.app.delivery import delivery
from reconciler.app.engine import CertificateWatch
from reconciler.app.extensions import acceptance_gate, check_extensions
from reconciler.app.fleet_health import kept_health
from reconciler.app.kept_object import KeptObject
from reconciler.app.live import LiveControl, LiveFleet, web_address
from reconciler.app.loop_proposals import DriftProposer, InventoryProposer
from reconciler.app.loop_proposer import LoopProposer, ProposerOptions
from reconciler.app.pod_role import pod_role
from reconciler.app.ports import AllowedSigners
from reconciler.app.recording import LoopRecorder
from reconciler.app.retention import JournalPruner
from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.validate import check_directory
from reconciler.app.wire_fabric import WireFabric
from reconciler.app.workspace import Workspace
from reconciler.converge.events import LoopTold, Progress
from reconciler.converge.leader_term import LoopDeps
from reconciler.converge.loop import Loop
from reconciler.drivers.kube import HealthMap, OwnPod
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.signers import Signers
from reconciler.drivers.spec_directory import SpecDirectory
from reconciler.drivers.spec_repo import SpecRepo
from reconciler.drivers.status import PrometheusMetrics
from reconciler.model.access_role import AccessRole
from reconciler.model.desired import Fleet
from reconciler.model.errors import ReconcilerError, SpecError, UsageError
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.printable import shown_url
from reconciler.model.recording import Recorder
from reconciler.model.spec_feed import SpecFeed
from reconciler.render.html.live import live_page
from reconciler.render.redact import names_of

if TYPE_CHECKING:
    from reconciler.drivers.web.server import WebServer

OFF = "off"


@dataclass(frozen=True, slots=True)
class SpecSource:
    """The source of the spec: `path` in the repository `repo`, or the requested directory when it is None.

    `secret` names user and password for the repository. `accept`: a commit to go on from although history was
    rewritten. `state`: where the clone lies.
    """

    repo: str | None
    branch: str
    path: str
    secret: str | None
    accept: str
    state: Path | None


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """`interval_s`: between passes; `pull_s`: between checks for a new spec; `retention_s`: of rows of the journal."""

    interval_s: float
    pull_s: float
    retention_s: float | None  # None: all are kept
    redact: bool


@dataclass(frozen=True, slots=True)
class WebRequest:
    """The address to serve on, and for whom, as drivers.web.access.WebOptions. `listen` OFF: nowhere.

    `pod`: NAMESPACE/NAME of the pod to label with our role; "" = none. `health_map`: the same of the ConfigMap in which
    the leader says how the fleet is.
    """

    listen: str
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    tokens: Mapping[str, AccessRole]
    proxy_roles: Mapping[str, AccessRole]
    pod: str = ""
    health_map: str = ""


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request for a service: whom it trusts, how often it looks, whom it serves, where it records."""

    signers: AllowedSigners
    options: ServiceOptions
    web: WebRequest
    recorder: Recorder | None


class Service:
    """A process of `reconciler run`, which follows the spec and keeps the fleet converged to it."""

    def __init__(self, workspace: Workspace, source: SpecSource, request: ServiceRequest) -> None:
        self._workspace = workspace
        self._source = source
        self._signers = Signers(request.signers.ssh, request.signers.gpg)
        self._options = request.options
        self._web = request.web
        self._recorder = request.recorder
        self._metrics = PrometheusMetrics()
        self._live = LiveFleet(workspace, self._metrics, web_address(source.repo or ""))
        self._signatures: tuple[str, Mapping[tuple[str, str], bool | None]] = ("", {})
        self._run = ""
        # A unique name, whatever RECONCILER_ACTOR says: two runners of one name would pass for one.
        self._holder = f"{whoami()}, {new_id('runner', workspace.clock.now())}"
        self._parked = False

    def serve(self, progress: Progress) -> None:
        """Run until SIGTERM, the normal end of a service. Raise KeyboardInterrupt for SIGINT."""
        try:
            run_async(self._work(progress))
        except KeyboardInterrupt:
            if not self._parked:
                raise
            progress(LoopTold("parked", "parked what ran: the next service continues it"))

    async def _work(self, progress: Progress) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end, task)
        async with AsyncExitStack() as closing:
            server = None
            if self._web.pod:
                label = pod_role(OwnPod(self._web.pod), lambda: self._metrics.status.role)
                closing.push_async_callback(KeptObject(label, progress).close)
            if self._web.health_map:
                health = kept_health(
                    HealthMap(self._web.health_map),
                    lambda: self._metrics.status,
                    lambda: self._metrics.fleet,
                    self._workspace.clock.now,
                )
                closing.push_async_callback(KeptObject(health, progress).close)
            if self._web.listen != OFF:
                server = self._server()
                closing.push_async_callback(server.close)
                progress = self._live.follow(progress)
            feed = self._feed()
            if isinstance(feed, SpecRepo):
                closing.callback(feed.close)
            recorder = None
            if self._recorder is not None:
                progress = recorder = LoopRecorder(
                    self._recorder, progress, self._workspace.clock.now, self._metrics.unrecorded
                )
            if server is not None:
                progress(LoopTold("listening", f"status at {await server.start()}"))
            fleet = await self._first(feed, progress)
            ledger = closing.enter_context(self._ledger(fleet))
            if server is not None:
                self._live.opened(closing.enter_context(self._ledger_to_read(fleet)))
            if recorder is not None:
                closing.push_async_callback(recorder.close)  # before the ledger, which knows the texts to redact
                if self._options.redact:
                    recorder.names = lambda fleet, seen: names_of(fleet, seen, ledger.nodes(list(seen.nodes)))
            options = ProposerOptions(self._holder, self._options.interval_s, self._options.redact)
            proposers = [
                kind(self._workspace, ledger, progress, options) for kind in (DriftProposer, InventoryProposer)
            ]
            for proposer in proposers:
                closing.push_async_callback(proposer.close)
            await self._loop(feed, ledger, progress, proposers if recorder is None else [recorder, *proposers]).run()

    def _server(self) -> WebServer:
        from reconciler.drivers.web.access import Access, WebOptions
        from reconciler.drivers.web.application import Asset, Served
        from reconciler.drivers.web.server import WebServer

        web, workspace = self._web, self._workspace
        options = WebOptions(web.listen, web.tls_cert, web.tls_key, web.tls_client_ca, web.tokens, web.proxy_roles)
        access = Access(options, workspace.secrets if web.tokens else None)
        control = LiveControl(self._live)
        assets = {path: Asset(text.encode(), media) for path, (text, media) in live_page().items()}
        server = WebServer(Served(self._metrics, workspace.clock.now, self._live, control, assets), access)
        self._live.changed = server.bell.ring
        return server

    def _end(self, task: asyncio.Task[None]) -> None:
        self._parked = True
        task.cancel()

    # --- the spec ---

    def _feed(self) -> SpecFeed:
        source, spec = self._source, self._workspace.request.spec
        if source.repo is None:
            check_directory(spec)
            return SpecDirectory(spec, _fits)
        state = source.state or self._workspace.state_directory() / "repositories" / _file_name(
            source.repo, source.branch
        )
        credentials = None
        if source.secret is not None:
            credentials = self._workspace.secrets.credentials(source.secret, source.repo)
        return SpecRepo(
            source.repo, state=state, branch=source.branch, path=source.path, signers=self._signers,
            credentials=credentials, accept=source.accept, fits=_fits,
        )  # fmt: skip

    async def _first(self, feed: SpecFeed, progress: Progress) -> Fleet:
        """Wait for the first valid spec. Raise SpecError for a directory, which the user can correct at once."""
        while True:
            pulled = await feed.pull()
            if feed.fleet is not None:
                message = f"commit {pulled.commit[:12]} is in force: {len(feed.fleet.nodes)} nodes"
                progress(LoopTold("spec", message, fields={"commit": pulled.commit, "head": pulled.head}))
                return feed.fleet
            if self._source.repo is None:
                raise SpecError(pulled.diagnostics) if pulled.diagnostics else UsageError(pulled.detail)
            if pulled.news:
                progress(LoopTold("spec_trouble", f"no spec yet: {pulled.detail}", problem=True))
            await RealClock().sleep(self._options.pull_s)

    # --- the loop ---

    def _loop(
        self, feed: SpecFeed, ledger: SqlLedger, progress: Progress, told: Sequence[LoopRecorder | LoopProposer]
    ) -> Loop:
        """Return the loop. `told`: whom it tells of each pass."""
        workspace = self._workspace

        def begin(fleet: Fleet) -> str:
            self._close_run(ledger, 0, "continued by another run: a new spec, or a new lease")
            self._run = new_id("run", workspace.clock.now())
            ledger.start_run(self._run, "run", fleet.source.commit, "", workspace.clock.now())
            self._live.run = self._run
            return self._run

        retention = self._options.retention_s
        certificates = CertificateWatch(workspace.engine, progress)
        summer = DaySummer(ledger, progress)
        pruner = JournalPruner(ledger, None if retention is None else timedelta(seconds=retention), progress)

        def saw(fleet: Fleet, plan: Plan, observation: Observation) -> None:
            self._live.saw(fleet, plan, observation)
            pruner.pass_ended(self._run, workspace.clock.now())
            summer.pass_ended(self._run, workspace.clock.now())
            certificates.pass_ended(workspace.clock.now())
            self._metrics.ledger_bytes = ledger.size()
            for one in told:
                one.pass_ended(fleet, plan, observation)

        deps = LoopDeps(
            begin=begin, ledger=ledger, clock=workspace.clock, metrics=self._metrics,
            gate=acceptance_gate(workspace.secrets.public_key, lambda: feed.fleet),
            progress=progress, signatures=self._verified, interval_s=self._options.interval_s,
            time_scale=workspace.time_scale, messenger=delivery(workspace, ledger),
            saw=saw, approvals=self._live.approved, workers=lambda: workspace.engine.workers,
        )  # fmt: skip

        def reach(fleet: Fleet) -> WireFabric:
            observer = workspace.engine.observer(workspace.clock, ledger.revoked_host_keys)
            return WireFabric(
                fleet, workspace.clock, workspace.secrets, workspace.overlay, ledger=ledger, observer=observer
            )

        return Loop(deps, feed, reach, holder=self._holder, pull_s=self._options.pull_s)

    @contextmanager
    def _ledger(self, fleet: Fleet) -> Iterator[SqlLedger]:
        name = fleet.settings.fleet
        ledger = self._workspace.open_ledger(self._workspace.ledger_place(name), name)
        exit_code = self._workspace.frontend.exit_code
        try:
            yield ledger
        except ReconcilerError as error:
            with suppress(ReconcilerError):  # the ledger itself may be the reason
                self._close_run(ledger, exit_code(error), str(error))
            raise
        except asyncio.CancelledError:
            self._close_run(ledger, 0 if self._parked else exit_code(KeyboardInterrupt()), "parked")
            raise
        finally:
            ledger.close()

    @contextmanager
    def _ledger_to_read(self, fleet: Fleet) -> Iterator[SqlLedger]:
        """Open the ledger once more for readers on other threads: a write through it is refused."""
        name = fleet.settings.fleet
        ledger = self._workspace.open_ledger(self._workspace.ledger_place(name), name, reading=True)
        try:
            yield ledger
        finally:
            ledger.close()

    def _close_run(self, ledger: SqlLedger, code: int, summary: str) -> None:
        if self._run:
            ledger.end_run(self._run, code, summary, self._workspace.clock.now())
        self._run = ""

    def _verified(self, fleet: Fleet) -> Mapping[tuple[str, str], bool | None]:
        if self._signatures[0] != fleet.digest:
            self._signatures = fleet.digest, self._workspace.verified(fleet)
        return self._signatures[1]


def _fits(fleet: Fleet) -> None:
    """Raise UsageError for a spec that would end the work on the present one: its extensions can't be loaded."""
    check_extensions(fleet)


def _file_name(repo: str, branch: str) -> str:
    """Return a readable directory name that is unique for the repository and the branch."""
    name = shown_url(repo).partition("?")[0].rpartition("/")[2].removesuffix(".git")
    readable = "".join(c if c.isalnum() else "-" for c in name)[:40]
    return f"{readable}-{hashlib.sha256(f'{repo} {branch}'.encode()).hexdigest()[:12]}"
