"""Wiring of `reconciler run`: the spec that is followed, the loop, its log, and what others measure it by."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from reconciler.app.clocks import RealClock
from reconciler.app.crashes import CRASHES
from reconciler.app.recorder import Keeper
from reconciler.app.session import Session, check_directory, new_id, run_async, whoami
from reconciler.app.wire_fabric import WireFabric
from reconciler.cli.exit_codes import ExitCode, of_error
from reconciler.cli.json_log import JsonLog
from reconciler.cli.progress import LineProgress
from reconciler.converge.events import LoopTold, Progress
from reconciler.converge.leader_term import LoopDeps
from reconciler.converge.loop import Loop
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.signers import Signers
from reconciler.drivers.spec_directory import SpecDirectory
from reconciler.drivers.spec_repo import SpecRepo
from reconciler.drivers.status import PrometheusMetrics, StatusServer
from reconciler.model.desired import Fleet
from reconciler.model.errors import ReconcilerError, SpecError
from reconciler.model.printable import shown_url
from reconciler.model.recording import Recorder
from reconciler.model.spec_feed import SpecFeed
from reconciler.render.redact import names_of

OFF = "off"


@dataclass(frozen=True, slots=True)
class Following:
    """Where the spec comes from: a directory, or `path` in a repository that is pulled."""

    spec: Path
    repo: str | None
    branch: str
    path: str
    secret: str | None
    signers: Path | None
    keys: Path | None
    accept: str
    state: Path | None


class Service:
    def __init__(
        self, session: Session, following: Following, *, interval_s: float, pull_s: float, listen: str,
        log: str | None, recorder: Recorder | None = None, redact: bool = False,
    ) -> None:  # fmt: skip
        self._session = session
        self._following = following
        self._interval_s = interval_s
        self._pull_s = pull_s
        self._listen = listen
        self._log = log
        self._recorder = recorder
        self._redact = redact
        self._metrics = PrometheusMetrics()
        self._signatures: tuple[str, Mapping[tuple[str, str], bool | None]] = ("", {})
        self._run = ""
        self._parked = False

    def serve(self) -> int:
        """DONE after a SIGTERM, which is how services are told to end."""
        with self._progress() as progress:
            try:
                run_async(self._work(progress))
            except KeyboardInterrupt:
                if not self._parked:
                    raise
                progress(LoopTold("parked", "parked what ran: the next one goes on with it"))
        CRASHES.forget()  # each was told when it came; how it ended has nothing to do with them
        return ExitCode.DONE

    async def _work(self, progress: Progress) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end, task)
        async with AsyncExitStack() as closing:
            server = StatusServer(self._metrics, self._session.clock.now, self._listen) if self._listen != OFF else None
            if server is not None:
                closing.push_async_callback(server.close)
            feed = self._feed()
            if isinstance(feed, SpecRepo):
                closing.callback(feed.close)
            keeper = None
            if self._recorder is not None:
                progress = keeper = Keeper(self._recorder, progress, self._session.clock.now, self._metrics.unrecorded)
            if server is not None:
                progress(LoopTold("listening", f"status at {await server.start()}"))
            fleet = await self._first(feed, progress)
            ledger = closing.enter_context(self._ledger(fleet))
            if keeper is not None:
                closing.push_async_callback(keeper.close)  # before the ledger, which knows what is not to be told
                if self._redact:
                    keeper.names = lambda fleet, seen: names_of(fleet, seen, ledger.nodes(list(seen.nodes)))
            await self._loop(feed, ledger, progress, keeper).run()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._parked = True
        task.cancel()

    # --- the spec ---

    def _feed(self) -> SpecFeed:
        told = self._following
        if told.repo is None:
            check_directory(told.spec)
            return SpecDirectory(told.spec)
        state = told.state or self._session.state_directory() / "repositories" / _file_name(told.repo, told.branch)
        credentials = None
        if told.secret is not None:
            credentials = self._session.secrets.credentials(told.secret, told.repo)
        return SpecRepo(
            told.repo, state=state, branch=told.branch, path=told.path, signers=Signers(told.signers, told.keys),
            credentials=credentials, accept=told.accept,
        )  # fmt: skip

    async def _first(self, feed: SpecFeed, progress: Progress) -> Fleet:
        """The first spec that may be followed. A directory's own user is told at once what is wrong with it."""
        while True:
            pulled = await feed.pull()
            if feed.fleet is not None:
                message = f"commit {pulled.commit[:12]} is in force: {len(feed.fleet.nodes)} nodes"
                progress(LoopTold("spec", message, fields={"commit": pulled.commit, "head": pulled.head}))
                return feed.fleet
            if self._following.repo is None:
                raise SpecError(pulled.diagnostics)
            if pulled.news:
                progress(LoopTold("spec_trouble", f"no spec yet: {pulled.detail}", problem=True))
            await RealClock().sleep(self._pull_s)

    # --- the loop ---

    def _loop(self, feed: SpecFeed, ledger: SqlLedger, progress: Progress, keeper: Keeper | None) -> Loop:
        session = self._session

        def begin(fleet: Fleet) -> str:
            self._close_run(ledger, ExitCode.DONE, "another run goes on: a new spec, or the lease anew")
            self._run = new_id("run", session.clock.now())
            ledger.start_run(self._run, "run", fleet.source.commit, "", session.clock.now())
            return self._run

        deps = LoopDeps(
            begin=begin, ledger=ledger, clock=session.clock, gate=session.gate, metrics=self._metrics,
            progress=progress, signatures=self._verified, interval_s=self._interval_s, time_scale=session.time_scale,
            **({} if keeper is None else {"saw": keeper.saw}),
        )  # fmt: skip

        def reach(fleet: Fleet) -> WireFabric:
            return WireFabric(fleet, session.clock, session.secrets, session.overlay)

        # Of its own, whatever its environment calls it: who has the same name is taken for the same.
        holder = f"{whoami()}, {new_id('runner', session.clock.now())}"
        return Loop(deps, feed, reach, holder=holder, pull_s=self._pull_s)

    @contextmanager
    def _ledger(self, fleet: Fleet) -> Iterator[SqlLedger]:
        name = fleet.settings.fleet
        ledger = self._session.open_ledger(self._session.ledger_place(name), name)
        try:
            yield ledger
        except ReconcilerError as error:
            with suppress(ReconcilerError):  # it may be the ledger itself that ends it
                self._close_run(ledger, of_error(error), str(error))
            raise
        except asyncio.CancelledError:
            self._close_run(ledger, ExitCode.DONE if self._parked else ExitCode.INTERRUPTED, "parked")
            raise
        finally:
            ledger.close()

    def _close_run(self, ledger: SqlLedger, code: ExitCode, summary: str) -> None:
        if self._run:
            ledger.end_run(self._run, int(code), summary, self._session.clock.now())
        self._run = ""

    def _verified(self, fleet: Fleet) -> Mapping[tuple[str, str], bool | None]:
        if self._signatures[0] != fleet.digest:
            self._signatures = fleet.digest, self._session.verified(fleet)
        return self._signatures[1]

    @contextmanager
    def _progress(self) -> Iterator[Progress]:
        if self._log == "human" or (self._log is None and sys.stderr.isatty()):
            yield LineProgress("observing")
            return
        log = JsonLog(self._session.clock.now)
        with log.libraries():
            yield log


def _file_name(repo: str, branch: str) -> str:
    """Readable, and one for each repository and branch."""
    import hashlib

    name = shown_url(repo).partition("?")[0].rpartition("/")[2].removesuffix(".git")
    readable = "".join(c if c.isalnum() else "-" for c in name)[:40]
    return f"{readable}-{hashlib.sha256(f'{repo} {branch}'.encode()).hexdigest()[:12]}"
