"""`python -m tests.k3s`: begin, upgrade, lose and take away a K3s cluster over real sshd, and kill the reconciler."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path

from tests.k3s.lab import PYTHON, NodesLab, Played
from tests.k3s.nodes import missing, running
from tests.k3s.spec import Spec, names
from tests.k3s.story import Story

APART = "K3S_NODES_APART"  # set in the network namespace that this program makes for itself and its nodes
ASK = Path(__file__).with_name("ask.py")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.k3s", description=__doc__)
    parser.add_argument("--servers", type=int, choices=(1, 3, 5), default=3)
    parser.add_argument("--agents", type=int, default=9)
    parser.add_argument(
        "--every", type=int, default=10, metavar="N", help="kill a run at the Nth command that changes a host; 0: never"
    )
    parser.add_argument("--kills", type=int, default=4, help="at most so many runs of a stage")
    parser.add_argument("--skip", action="append", default=[], choices=("upgrade by one minor", "replace a lost node"))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the ledger, the spec and what runs said there")
    given = parser.parse_args()
    if given.agents < 1:
        parser.error("--agents: at least one, whose disk has a partition that a teardown keeps")
    if why := missing():
        print(f"make e2e-k3s: {why}", file=sys.stderr)
        return 1
    if APART not in os.environ:
        alone = f"ip link set lo up && exec {shlex.join([sys.executable, '-m', 'tests.k3s', *sys.argv[1:]])}"
        os.execvpe("unshare", ["unshare", "--net", "sh", "-c", alone], os.environ | {APART: "1"})
    with tempfile.TemporaryDirectory(prefix="k3s-") as scratch:
        if given.keep is not None:
            given.keep.mkdir(parents=True, exist_ok=True)
        return asyncio.run(_play((given.keep or Path(scratch)).resolve(), given))


async def _play(home: Path, given: argparse.Namespace) -> int:
    played = Played()
    servers, agents = names(given.servers, given.agents)
    spec = Spec(home / "spec", servers, agents, {})
    lab = NodesLab(home, spec, given.servers + given.agents, played)
    (home / "ask").write_text(f"#!{PYTHON} -SE\n{ASK.read_text()}")
    (home / "ask").chmod(0o755)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asyncio.current_task().cancel)  # type: ignore[union-attr]
    logins, authorized = lab.logins([*servers, *agents])
    with running(logins, authorized, home) as nodes:
        spec.hosts |= {name: node.address for name, node in nodes.items()}
        try:
            await lab.begin(nodes)
            return await Story(lab, home, servers, agents, given.every, given.kills).tell(given.skip)
        finally:
            await lab.stop()


if __name__ == "__main__":
    sys.exit(main())
