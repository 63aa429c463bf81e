"""`adopt` from an observation, as scripts call it: a diff that git takes, codes and JSON that mean what they say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from reconciler.drivers.ledger import SqlLedger
from tests import builders as b
from tests.cli.shell import ended, reconciler, started


def tree(spec: Path) -> dict[str, str]:
    return {path.relative_to(spec).as_posix(): path.read_text() for path in spec.rglob("*.yaml")}


def test_the_diff_of_a_dry_run_is_what_is_written(spec: Path, demo: Path) -> None:
    before = tree(spec)
    dry = reconciler("adopt", "gpu-*", spec, "--observation", demo, "--dry-run")
    assert dry.code == 0, dry.err
    assert tree(spec) == before
    subprocess.run(["git", "apply", "-"], input=dry.out, text=True, cwd=spec.parent, check=True)
    patched = tree(spec)
    assert patched != before
    for name, text in before.items():
        (spec / name).write_text(text)
    done = reconciler("adopt", "gpu-*", spec, "--observation", demo)
    assert (done.code, done.out, tree(spec)) == (0, dry.out, patched)
    assert "values of " in done.err
    assert reconciler("adopt", "gpu-*", spec, "--observation", demo, "--dry-run").out == "", "it is as adopted"


def test_what_is_refused_ends_with_8_and_what_makes_no_sense_with_64(spec: Path, demo: Path) -> None:
    before = tree(spec)
    for what, code, why in (
        ("gpu-a001.trust.image", 8, "never adopted"),
        ("gpu-a001.bios.Sriov", 64, "did you mean 'bios.SriovGlobalEnable'"),
        ("gpu-z*", 64, "matches no node"),
        ("gpua001", 64, "did you mean 'gpu-a001'?"),
        ("pool=train.host.hostname", 8, "gpu-a005: host.hostname could not be read (powered off)"),
    ):
        done = reconciler("adopt", what, spec, "--observation", demo, "--dry-run")
        assert (done.code, why in done.err) == (code, True), done.err
    outside = reconciler("adopt", "gpu-a001", spec, "--observation", demo, "--limit", "pool=infer")
    assert (outside.code, "no node in common" in outside.err) == (64, True)
    assert tree(spec) == before


def test_json_lists_each_edit_with_its_place_and_reason(spec: Path, demo: Path) -> None:
    found = reconciler("adopt", "gpu-*", spec, "--observation", demo, "--dry-run", "-o", "json").json
    assert found["written"] is False
    assert {(item["node"], item["path"]) for item in found["adopted"]} == {
        (node, path)
        for edit in found["edits"]
        for node in edit["nodes"]
        for path in [i["path"] for i in found["adopted"] if i["node"] == node]
        if path == edit["path"] or edit["path"] == "image"
    }
    assert all(item["was"] != item["now"] for item in found["adopted"])
    assert found["diff"].startswith("--- a/fleet-spec/")


def test_what_the_ledger_knows_of_a_node_is_asked_first(spec: Path, demo: Path, tmp_path: Path) -> None:
    """Whoever is at work on one has not left it as it will be."""
    path = tmp_path / "ledger.sqlite"
    SqlLedger(path).close()
    words = ("adopt", "gpu-a*", spec, "--observation", demo, "--dry-run", "--ledger", path, "-o", "json")
    before = reconciler(*words).json
    [node, *_] = sorted({item["node"] for item in before["adopted"]})
    ledger = SqlLedger(path)
    ledger.start_run("run-1", "apply", "", "", b.NOW)
    token = ledger.acquire("fleet", "ops", 60.0, b.NOW).token
    ledger.begin("run-1", node, "reboot", "", "drift", {}, token, b.NOW)
    ledger.close()
    found = reconciler(*words).json
    assert {item["node"] for item in found["adopted"]} == {item["node"] for item in before["adopted"]} - {node}
    assert any(sentence.startswith(f"{node}: an action is under way") for sentence in found["left"])


def test_a_spec_that_is_edited_while_nodes_are_read_is_left_as_it_is(spec: Path, demo: Path, tmp_path: Path) -> None:
    """The observation comes through a pipe, so that the edit is sure to come before it."""
    pipe = tmp_path / "observation.json"
    os.mkfifo(pipe)
    process = started("adopt", "gpu-a*", spec, "--observation", pipe)
    with pipe.open("wb") as stream:
        for path in spec.rglob("*.yaml"):
            path.write_text("# edited\n" + path.read_text())
        edited = tree(spec)
        stream.write(demo.read_bytes())
    done = ended(process)
    assert (done.code, "was changed meanwhile; nothing is written" in done.err) == (1, True), done.err
    assert tree(spec) == edited
