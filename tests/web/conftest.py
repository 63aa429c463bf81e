"""A fleet in which much is going on, served as `run` serves it, and clients of the API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from reconciler.app.live import LiveControl, LiveFleet
from reconciler.app.ports import FleetRequest
from reconciler.app.workspace import Workspace
from reconciler.converge.events import ActionStarted, ActionStep, ignore
from reconciler.converge.status import fleet_status
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.status import PrometheusMetrics
from reconciler.drivers.web.access import Access, WebOptions
from reconciler.drivers.web.application import Served
from reconciler.drivers.web.server import WebServer
from reconciler.model.access_role import AccessRole
from reconciler.model.status import LoopStatus, Role
from reconciler.render.html import Material
from tests.html import world

TOKENS = {"ann": AccessRole.VIEWER, "bob": AccessRole.OPERATOR, "eve": AccessRole.ADMIN}
COMMIT = "c0ffee0123456789"


@dataclass
class Live:
    """A live view without a loop: tests tell it what the loop would."""

    material: Material
    view: LiveFleet
    metrics: PrometheusMetrics
    ledger: SqlLedger
    workspace: Workspace

    def pass_again(self) -> None:
        plan, seen = self.material.plan, self.material.observation
        self.view.saw(self.material.fleet, plan, seen)
        self.metrics.passed(fleet_status(plan, seen))

    def lead(self, role: Role = Role.LEADER) -> None:
        now = self.workspace.clock.now()
        self.metrics.loop_status(LoopStatus(role, COMMIT, COMMIT, last_pass=now))

    def begin(self, steps: int = 1) -> str:
        """Let the first node with a plan begin its first action, and tell a step of it. Return the node."""
        name, plan = next((name, plan) for name, plan in self.material.plan.nodes.items() if len(plan.actions) > 1)
        tell = self.view.follow(ignore)
        tell(ActionStarted(name, plan.actions[0]))
        for at in range(steps):
            tell(ActionStep(name, plan.actions[0].id, f"installer: writing {40 + at} %, 812 MB/s"))
        return name


@contextmanager
def live_fleet(directory: Path, material: Material) -> Iterator[Live]:
    workspace = Workspace(FleetRequest(directory / "spec", ledger=str(directory / "ledger.sqlite")))
    workspace.fleet = material.fleet
    metrics, name = PrometheusMetrics(), material.plan.fleet
    view = LiveFleet(workspace, metrics, "https://github.com/ops/fleet")
    ledger = SqlLedger(directory / "ledger.sqlite", fleet=name, clock=workspace.clock)
    reading = SqlLedger(directory / "ledger.sqlite", fleet=name, clock=workspace.clock, reading=True)
    view.opened(reading)
    found = Live(material, view, metrics, ledger, workspace)
    found.lead()
    found.pass_again()
    yield found
    reading.close()
    ledger.close()


@pytest.fixture(scope="session")
def material() -> Material:
    return world.make(60)


@pytest.fixture
def live(tmp_path: Path, material: Material) -> Iterator[Live]:
    with live_fleet(tmp_path, replace(material)) as found:
        yield found


@contextmanager
def serving(live: Live, options: WebOptions = WebOptions("127.0.0.1:0"), **more: Any) -> Iterator[str]:  # noqa: B008
    """Serve on a loop of its own, as `run` does. `store`: of secrets; `assets`: of the page."""
    store: SecretStore | None = more.get("store")
    served = Served(live.metrics, live.workspace.clock.now, live.view, LiveControl(live.view), more.get("assets", {}))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def on_loop(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    server = WebServer(served, Access(options, store))
    live.view.changed = server.bell.ring
    try:
        yield on_loop(server.start())
    finally:
        on_loop(server.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def url(live: Live) -> Iterator[str]:
    with serving(live) as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=10) as found:
        yield found


def secret_store(directory: Path) -> SecretStore:
    """Return a store with a token for each role, and one that is too short."""
    lines = ["secrets:"]
    for name in (*TOKENS, "short"):
        (directory / name).write_text("tiny" if name == "short" else f"{name}-{'x' * 30}\n")
        (directory / name).chmod(0o600)
        lines.append(f"  {name}: {{file: {name}}}")
    (directory / "secrets.yaml").write_text("\n".join(lines) + "\n")
    (directory / "secrets.yaml").chmod(0o600)
    return SecretStore.load(directory / "secrets.yaml")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> SecretStore:
    return secret_store(tmp_path_factory.mktemp("secrets"))


def token(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-{'x' * 30}"}


Get = Callable[[str], Any]


@pytest.fixture
def get(client: httpx.Client) -> Get:
    def ask(path: str) -> Any:
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask
