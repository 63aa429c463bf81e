"""The commands that put K3s on a machine, over a real SSH connection, and the fact of it read back by the driver."""

from __future__ import annotations

import hashlib
import random
from datetime import timedelta

import pytest

from reconciler.converge.actions.k3s import READY
from reconciler.drivers.ssh import SshHost
from reconciler.lab.hardware.k3s_site import K3sSite
from reconciler.lab.inprocess.facts import host_facts
from reconciler.model.k3s import BINARY, CONFIG, IMAGES, JOIN, UNIT_FILES
from tests.lab.ssh_bench import EPOCH, Bench
from tests.lab.test_wire_ssh_end_to_end import read, with_host

pytestmark = pytest.mark.wire
URL = "https://files.example/v1.31.5+k3s1/k3s"


def test_a_first_server_is_put_on_a_machine_over_ssh() -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        site = bench.machine.k3s = K3sSite({bench.machine.name: bench.machine}, bench.clock, random.Random(0))

        async def run(*argv: str, stdin: str = "", status: int = 0) -> str:
            result = await host.run(argv, timeout=20, stdin=stdin)
            assert result.exit_status == status, (argv, result)
            return result.stdout

        assert (await read(host)).k3s == host_facts(bench.machine, (), ()).k3s
        assert await run("id", "-u") == "0\n"
        await run(*READY, status=127)
        part = f"{BINARY}.part"
        await run("curl", "--fail", "--location", "--continue-at", "-", "--retry", "8", "--output", part, URL)
        assert (await run("sha256sum", part)).split()[0] == hashlib.sha256(URL.encode()).hexdigest()
        await run("mv", "-f", part, BINARY)
        await run("tee", f"{IMAGES}/1234.tar.zst", stdin="images")
        for path, text in {
            CONFIG: "docker: true\n",
            JOIN: "cluster-init: true\n",
            f"{UNIT_FILES}/k3s.service": "[Unit]\n",
        }.items():
            await run("install", "-m", "600", "/dev/stdin", path, stdin=text)
        await run(*READY, status=1)
        await run("systemctl", "daemon-reload")
        await run("systemctl", "enable", "k3s")
        await run("systemctl", "restart", "k3s")
        assert not site.refused, site
        assert await run(*READY) == "ok"
        assert site.members == [bench.machine.name]
        token = (await run(BINARY, "token", "create", "--ttl", "15m", "--description", "reconciler: n3")).strip()
        identity = token.rpartition("::")[2].partition(".")[0]
        assert await run(BINARY, "token", "delete", identity) == f'bootstrap token "{identity}" deleted\n'
        assert not site.valid()
        found = (await read(host)).k3s
        date = EPOCH + timedelta(seconds=bench.machine.now)
        assert found == host_facts(bench.machine, (), (), date).k3s
        assert found is not None
        assert found.ends is not None
        assert (found.version, found.units, found.datastore) == ("v1.31.5+k3s1", {"k3s": True}, True)
        assert found.images == ("1234.tar.zst",)

    with_host(scenario)
