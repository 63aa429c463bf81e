"""Snapshots of etcd before upgrades: how many stay on a server, and which never go."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.converge.actions.k3s_snapshots import due_to_go
from reconciler.lab.hardware.k3s_site import K3sSite
from reconciler.lab.hardware.tools import k3s as lab_k3s
from reconciler.lab.hardware.tools.call import Call, Ran, failed
from reconciler.model.k3s import SNAPSHOTS
from reconciler.model.outcome import Done
from tests.converge.k3s_world import NEW, OLD, declare, k3s_world, site, spec
from tests.converge.test_k3s import converged
from tests.converge.world import World

Worlds = Callable[..., World]
VERSIONS = ("v1.30.9-k3s1", "v1.31.5-k3s1", "v1.32.1-k3s1", "v1.33.0-k3s2")


def have(here: World, node: str, names: list[str]) -> None:
    for name in names:
        here.machine(node).write_file(f"{SNAPSHOTS}/{name}", name)
        site(here).snapshots.append(name)


def on_disk(here: World, node: str) -> list[str]:
    files = here.machine(node).disk().files
    return [path.rpartition("/")[2] for path in files if path.startswith(f"{SNAPSHOTS}/")]


def test_an_upgrade_leaves_the_newest_of_a_server_and_what_is_not_ours(world: Worlds) -> None:
    here = k3s_world(world, spec(snapshots={"keep": 2}), nodes=4)
    here.adopt()
    old = [f"before-v1.30.{at}-k3s1-n0-{100 + at}" for at in range(4)]
    foreign = ["etcd-snapshot-n0-7", "by-hand-n0-8", "before-v1.30.1-k3s1-other-n0-9", "before-v1.30.1-k3s1-n1-9"]
    have(here, "n0", [*old, *foreign])
    declare(here, spec(NEW, snapshots={"keep": 2}))
    converged(here)
    left = on_disk(here, "n0")
    [saved] = [name for name in left if name.startswith(f"before-{NEW.replace('+', '-')}-n0-")]
    assert sorted(left) == sorted([old[-1], *foreign, saved])
    assert len(on_disk(here, "n1")) == 1


def test_an_old_file_that_stays_is_told_and_fails_no_upgrade(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = k3s_world(world, spec(snapshots={"keep": 1}), nodes=4)
    here.adopt()
    have(here, "n0", [f"before-v1.30.1-k3s1-n0-{at}" for at in (1, 2)])
    snapshot = lab_k3s._snapshot

    def refusing(shared: K3sSite, call: Call) -> Ran | None:
        return failed(1, "the disk is read-only") if call.args[1] == "delete" else snapshot(shared, call)

    monkeypatch.setattr(lab_k3s, "_snapshot", refusing)
    declare(here, spec(NEW, snapshots={"keep": 1}))
    outcome = here.act("install_k3s", "n0")
    assert isinstance(outcome, Done)
    assert outcome.detail.startswith(f"{NEW} is in place, and runs; old snapshots of etcd stay: ")
    assert "the disk is read-only" in outcome.detail


names = st.builds(
    "before-{}-{}-{}{}".format,
    st.sampled_from(VERSIONS), st.sampled_from(["n0", "n1", "x-n0"]), st.integers(0, 10**10),
    st.sampled_from(["", ".zip"]),
)  # fmt: skip
others = st.sampled_from(["etcd-snapshot-n0-1", "on-demand-n0-2", "before-friday-n0-3", "before-v1.31.5-k3s1"])


@given(st.lists(names | others), st.integers(1, 6), st.permutations(VERSIONS))
def test_the_way_back_and_what_is_not_ours_always_stay(listed: list[str], keep: int, versions: list[str]) -> None:
    """Whatever is there: of a list of one kind only as many go as are too many, and the oldest first."""
    runs, declared = (version.replace("-", "+") for version in versions[:2])
    due = due_to_go(tuple(listed), "n0", keep, (runs, declared))
    ours = {name for name in listed if name.startswith(tuple(f"before-{version}-n0-" for version in VERSIONS))}
    assert set(due) <= ours
    assert not [name for name in due if name.startswith((f"before-{versions[0]}-n0-", f"before-{versions[1]}-n0-"))]
    assert len(ours) - len(due) >= min(keep, len(ours))
    age = {name: int(name.removesuffix(".zip").rpartition("-")[2]) for name in ours}
    newest = sorted(ours, key=age.__getitem__, reverse=True)[keep - 1 :][:1]
    assert all(age[name] <= age[newest[0]] for name in due)
    assert due_to_go(tuple(name for name in listed if name not in due), "n0", keep, (runs, declared)) == ()


def test_what_runs_and_what_is_declared_stay_however_many_there_are() -> None:
    listed = tuple(f"before-{OLD.replace('+', '-')}-n0-{at}" for at in range(9))
    assert due_to_go(listed, "n0", 1, (OLD, NEW)) == ()
    assert len(due_to_go(listed, "n0", 1, (NEW, NEW))) == 8
