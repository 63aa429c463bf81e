"""A fleet that is in service and has no spec: over the wire, as an operator begins, without a lab's endpoints."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncssh
import pytest

from tests.cli.shell import Done, LabDirectory, command, reconciler, running_lab, until

pytestmark = pytest.mark.wire

SCENARIO = """
description: each differs in something
nodes:
  gpu-0001: {drift: [sysctl_off, wrong_hostname]}
  gpu-0002: {drift: [bios_off, old_firmware]}
  gpu-0003: {drift: [service_stopped, wrong_boot_order, missing_label]}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    """Three nodes that serve, and differ from what they were meant to be."""
    directory = tmp_path_factory.mktemp("init")
    scenario = directory / "scenario.yaml"
    scenario.write_text(SCENARIO)
    with running_lab(directory / "lab", "--scenario", str(scenario)) as found:
        yield found


@pytest.fixture
def home(tmp_path: Path, lab: LabDirectory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, and a CSV file as operators have one."""
    home = tmp_path / "fleet"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("RECONCILER_SECRETS", str(tmp_path / "secrets" / "secrets.yaml"))
    document = json.loads((lab.path / "endpoints.json").read_text())
    lines = [
        f"gpu-{at:04d},{bmc},{host},r1"
        for at, (bmc, host) in enumerate(zip(document["bmc"], document["ssh"], strict=True), 1)
    ]
    (home / "nodes.csv").write_text("\n".join(["name,bmc,host,rack", *lines, ""]))
    return home


def flags(lab: LabDirectory) -> list[str | Path]:
    return [
        "--nodes", "nodes.csv", "--bmc-credentials", lab.path / "secrets/bmc.json",
        "--bmc-ca", lab.path / "pki/bmc-ca.pem",
        "--ssh-key", lab.path / "secrets/ssh_ed25519", "--host-ca", lab.path / "pki/ssh-host-ca.pub",
        "--kubeconfig", lab.path / "kubeconfig",
    ]  # fmt: skip


def test_what_init_writes_plans_nothing_and_what_is_edited_is_planned(home: Path, lab: LabDirectory) -> None:
    done = reconciler("init", *flags(lab))
    assert done.code == 0, done.err
    assert "fleet-spec/fleet.yaml" in done.out
    assert "3 nodes in service: tests waived" in done.err
    secrets = home.parent / "secrets" / "secrets.yaml"
    assert secrets.stat().st_mode & 0o777 == 0o600
    password = json.loads((lab.path / "secrets/bmc.json").read_text())["password"]
    assert not any(password in path.read_text() for path in (*Path("fleet-spec").rglob("*.*"), secrets))
    assert reconciler("validate").code == 0
    plan = reconciler("plan", "--detailed-exitcode")
    assert (plan.code, "nothing to do" in plan.out) == (0, True), plan.out + plan.err
    drift = reconciler("drift", "--detailed-exitcode")  # one node's fabric manager is stopped: trouble, and no drift
    assert (drift.code, "no node differs from the spec; 1 node with trouble" in drift.out) == (2, True), drift.out
    personas = Path("fleet-spec/personas.yaml")
    personas.write_text(personas.read_text().replace('vm.swappiness: "1"', 'vm.swappiness: "10"'))
    changed = reconciler("plan", "--detailed-exitcode")
    assert changed.code == 2
    assert "host.sysctls.vm.swappiness: 1 -> 10  [pending]" in changed.out
    for flag, name in (("--bios", "NumaNode"), ("--service", "nobody"), ("--sysctl", "vm.swap")):
        slip = reconciler("init", "other", *flags(lab), flag, name)
        assert (slip.code, f"{flag} {name}: no node reports such a" in slip.err) == (64, True), slip.err
    again = reconciler("init", *flags(lab))
    assert (again.code, "overwrites nothing" in again.err) == (64, True)
    shutil.rmtree("fleet-spec")
    assert reconciler("init", *flags(lab), "--bios", "NumaNodesPerSocket").code == 0
    assert reconciler("plan", "--detailed-exitcode").code == 0, "what certificates bind is what this spec manages"


def test_another_ledger_needs_a_waiver_for_nodes_that_serve(home: Path, lab: LabDirectory) -> None:
    """Certificates are in the ledger of `init`; for another one an operator waives the tests, or all run."""
    assert reconciler("init", *flags(lab)).code == 0
    there = ("--ledger", home / "other.sqlite")
    assert reconciler("plan", "--detailed-exitcode", *there).code == 64, "nobody has made it"
    assert reconciler("plan", "--detailed-exitcode", *there, "--create-ledger").code == 2
    assert reconciler("ledger", "waive", "gpu-*", "--reason", "moved", *there).code == 64, "nobody was asked"
    waived = reconciler("ledger", "waive", "gpu-*", "--reason", "moved", "--yes", *there)
    assert waived.code == 0, waived.out
    assert reconciler("plan", "--detailed-exitcode", *there).code == 0
    twice = reconciler("ledger", "waive", "gpu-*", "--reason", "moved", "--yes", *there)
    assert (twice.code, "it has a certificate" in twice.out) == (7, True)
    pools = Path("fleet-spec/pools")
    for path in pools.glob("*.yaml"):
        path.write_text(path.read_text().replace("spec:\n", "spec:\n  state: quarantined\n"))
    third = ("--ledger", home / "third.sqlite", "-o", "json")
    idle = reconciler("ledger", "waive", "gpu-*", "--reason", "moved", "--yes", *third)
    assert (idle.code, {row["outcome"] for row in idle.json}) == (
        7,
        {"its state is quarantined, and nobody lets it serve"},
    )


@pytest.mark.parametrize(
    ("left_out", "named"),
    [
        ("--nodes", "--nodes, or --name, --bmc and --host"),
        ("--bmc-credentials", "--bmc-credentials"),
        ("--bmc-ca", "--bmc-ca or --bmc-insecure"),
        ("--ssh-key", "--ssh-key"),
        ("--host-ca", "--host-ca or --host-insecure"),
        ("--kubeconfig", "--kubeconfig or --no-cluster"),
    ],
)
def test_off_a_terminal_nothing_is_asked(home: Path, lab: LabDirectory, left_out: str, named: str) -> None:
    words = flags(lab)
    at = words.index(left_out)
    done = reconciler("init", *words[:at], *words[at + 2 :])
    assert (done.code, f"init needs {named}" in done.err) == (64, True), done.err
    assert not Path("fleet-spec").exists()


@pytest.mark.parametrize(
    ("answers", "kept"),
    [(b"y\n", "{authorities: [pki/ssh-host-ca.pub]}"), (b"n\ninsecure\n", "{insecure: true}")],
)
def test_on_a_terminal_what_was_not_given_is_asked_for(
    home: Path, lab: LabDirectory, answers: bytes, kept: str
) -> None:
    """Whose key is shown is said before anybody trusts it."""
    words = flags(lab)
    given = [word for at, word in enumerate(words) if "--host-ca" not in words[max(0, at - 1) : at + 1]]
    said = typed(command("init", *given), answers, os.environ)
    assert said.code == 0, said.out
    authority = asyncssh.read_public_key(lab.path / "pki/ssh-host-ca.pub").get_fingerprint()
    assert f"gpu-0001 shows a host key signed by the CA {authority}; compare it" in said.out
    assert f"hostKeys: {kept}" in Path("fleet-spec/fleet.yaml").read_text()
    assert ("INSECURE: SSH host keys are not verified" in said.out) is ("insecure" in kept)


def test_an_answer_that_can_not_be_is_asked_for_again(home: Path, lab: LabDirectory) -> None:
    """A slip of the finger on the last question costs nobody all of the answers before."""
    words = flags(lab)
    given = list(words)
    for flag in ("--nodes", "--bmc-ca", "--kubeconfig"):
        at = given.index(flag)
        del given[at : at + 2]
    nodes, ca, kubeconfig = (str(words[words.index(flag) + 1]) for flag in ("--nodes", "--bmc-ca", "--kubeconfig"))
    secret = words[words.index("--bmc-credentials") + 1]
    answers = ["no/such.csv", "gpu-a[001-", nodes, "no.pem", str(secret), ca, "no.kubeconfig", kubeconfig]
    said = typed(command("init", *given), "".join(f"{answer}\n" for answer in answers).encode(), os.environ)
    assert said.code == 0, said.out
    assert "there is no file no/such.csv" in said.out
    assert "gpu-a[001-" in said.out
    assert "no.pem: No such file" in said.out
    assert f"{secret}, as --bmc-ca: not a PEM file of certificates" in said.out, "it would be in the spec"
    assert "there is no file no.kubeconfig" in said.out
    assert Path("fleet-spec/fleet.yaml").exists()


@pytest.mark.parametrize("flag", ["--bmc-ca", "--host-ca"])
def test_a_private_key_is_taken_for_no_ca(home: Path, lab: LabDirectory, flag: str) -> None:
    """What is taken for one is written into the spec, which goes to git."""
    words = list(flags(lab))
    words[words.index(flag) + 1] = words[words.index("--ssh-key") + 1]
    done = reconciler("init", *words)
    assert (done.code, f", as {flag}: " in done.err) == (64, True), done.err
    assert not Path("fleet-spec").exists()


def test_ranges_that_name_other_numbers_are_asked_for_again(home: Path) -> None:
    answers = "gpu-a[001-003]\nhttps://10.0.0.[1-2]\nhttps://10.0.0.[1-3]\n10.0.1.[1-4]\n10.0.1.[1-3]\n\x04"
    said = typed(command("init", "--bmc-insecure", "--host-insecure", "--no-cluster"), answers.encode(), os.environ)
    assert "https://10.0.0.[1-2] is 2, and 3 are wanted: one for each node" in said.out
    assert "the ranges must have the same length, and these are 3 names, 3 BMCs, 4 hosts" in said.out
    assert "user of the BMCs" in said.out, "it went on"


def typed(words: list[str], answer: bytes, env: Mapping[str, str], unseen: bytes = b"") -> Done:
    """A command on a terminal, where somebody types; what is `unseen` as soon as it is not shown."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(words, stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(env))
    os.close(follower)
    os.write(leader, answer)
    if unseen:
        until(lambda: not termios.tcgetattr(leader)[3] & termios.ECHO)  # what was typed before is thrown away
        os.write(leader, unseen)
    out, _ = process.communicate(timeout=60)
    os.close(leader)
    return Done(process.returncode, out.decode(), "")


def test_secrets_that_did_not_work_are_not_kept(home: Path, lab: LabDirectory) -> None:
    """The next try, with others, is as good as a first."""
    wrong = home / "bmc.json"
    wrong.write_text(json.dumps({"username": "admin", "password": "wrong"}))
    wrong.chmod(0o600)
    words = flags(lab)
    at = words.index("--bmc-credentials") + 1
    failed = reconciler("init", *words[:at], wrong, *words[at + 1 :])
    assert (failed.code, "no node could be read" in failed.err) == (4, True), failed.err
    assert not (home.parent / "secrets").exists()
    done = reconciler("init", *words)
    assert done.code == 0, done.err
    assert reconciler("plan", "--detailed-exitcode").code == 0


@pytest.mark.parametrize("flag", ["--bmc-credentials", "--ssh-key", "--kubeconfig"])
def test_secrets_of_another_fleet_are_not_taken_for_those_that_were_given(
    home: Path, lab: LabDirectory, flag: str
) -> None:
    words = flags(lab)
    assert reconciler("init", *words).code == 0
    secrets = home.parent / "secrets" / "secrets.yaml"
    before = secrets.read_text()
    at = words.index(flag) + 1
    other = shutil.copy(words[at], home / "other")
    refused = reconciler("init", "second", *words[:at], other, *words[at + 1 :])
    assert (refused.code, f"{flag} {other} is not what {secrets} says" in refused.err) == (64, True), refused.err
    assert "RECONCILER_SECRETS" in refused.err
    assert (secrets.read_text(), Path("second").exists()) == (before, False)
    env = {"RECONCILER_SECRETS": str(home.parent / "secrets" / "second.yaml")}
    assert reconciler("init", "second", *words[:at], other, *words[at + 1 :], env=env).code == 0


def test_credentials_that_are_typed_are_kept_once_they_worked(home: Path, lab: LabDirectory) -> None:
    known = json.loads((lab.path / "secrets/bmc.json").read_text())
    words = [word for word in flags(lab) if word not in ("--bmc-credentials", lab.path / "secrets/bmc.json")]
    said = typed(
        command("init", *words), f"{known['username']}\n".encode(), os.environ, unseen=f"{known['password']}\n".encode()
    )
    assert said.code == 0, said.out
    kept = home.parent / "secrets" / "bmc.json"
    assert (json.loads(kept.read_text()), kept.stat().st_mode & 0o777) == (known, 0o600)
    assert reconciler("plan", "--detailed-exitcode").code == 0
    (home.parent / "secrets" / "secrets.yaml").unlink()
    again = typed(command("init", "second", *words), b"", os.environ)
    assert (again.code, f"give --bmc-credentials {kept}" in again.out) == (64, True), again.out


def test_a_fleet_is_in_a_cluster_or_in_none(home: Path, lab: LabDirectory) -> None:
    done = reconciler("init", *flags(lab), "--no-cluster")
    assert (done.code, "--kubeconfig and --no-cluster exclude each other" in done.err) == (64, True), done.err
    assert not (home.parent / "secrets").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--name", "n[1-2]"], "init needs --bmc"),
        (["--name", "n[1-2]", "--bmc", "https://10.0.0.[1-3]", "--host", "10.0.1.[1-2]"], "2 names, 3 BMCs, 2 hosts"),
        (["--name", "n[2-1]", "--bmc", "https://a", "--host", "a"], "counts from 2 down to 1"),
        (["--name", "n1", "--bmc", "a", "--host", "a"], "n1: 'a' is not the URL of a BMC"),
        (["--name", "n1", "--nodes", "nodes.csv"], "exclude each other"),
    ],
)
def test_ranges_that_make_no_sense(home: Path, lab: LabDirectory, words: list[str], why: str) -> None:
    done = reconciler("init", *words, *flags(lab)[2:])
    assert (done.code, why in done.err) == (64, True), done.err


def test_an_inventory_of_ansible_gives_the_spec_that_a_table_gives(home: Path, lab: LabDirectory) -> None:
    """As ansible-inventory itself writes it, over the wire to the same nodes."""
    lines = [line.split(",") for line in (home / "nodes.csv").read_text().splitlines()[1:]]
    with (home / "hosts.ini").open("w") as file:
        for name, bmc, host, rack in lines:
            address, _, port = host.rpartition(":")
            file.write(f"{name} ansible_host={address} ansible_port={port} redfish={bmc} rack={rack}\n")
    program = Path(sys.executable).parent / "ansible-inventory"
    words = (program, "-i", "hosts.ini", "--list", "--output", "inventory.json")
    assert subprocess.run(words, env=os.environ | {"LC_ALL": "C.UTF-8"}, capture_output=True).returncode == 0
    given = flags(lab)[2:]
    assert reconciler("init", "--from", "ansible:inventory.json", "--field", "bmc=redfish", *given).code == 0
    from_ansible = {path.name: path.read_text() for path in (home / "fleet-spec").rglob("*.yaml")}
    shutil.rmtree(home / "fleet-spec")
    assert reconciler("init", *flags(lab)).code == 0
    assert {path.name: path.read_text() for path in (home / "fleet-spec").rglob("*.yaml")} == from_ansible


def test_nodes_may_be_named_in_ranges(home: Path, lab: LabDirectory) -> None:
    """Addresses of a lab are in no row; one node is a range, too."""
    _, bmc, host, _ = (home / "nodes.csv").read_text().splitlines()[1].split(",")
    done = reconciler("init", "--name", "gpu-0001", "--bmc", bmc, "--host", host, *flags(lab)[2:])
    assert done.code == 0, done.err
    assert reconciler("plan", "--detailed-exitcode").code == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name,bmc\n", "names no node"),
        ("bmc\nhttps://10.0.0.1\n", "column 'name' is missing"),
        ("name,bmcs\nn1,https://10.0.0.1\n", "unknown column 'bmcs'; did you mean 'bmc'"),
        ("name,bmc\nn1,10.0.0.1\n", "nodes.csv:2: '10.0.0.1' is not the URL of a BMC"),
        ("name,bmc,host\nn1,,a\n", "nodes.csv:2: bmc is missing"),
        ("name,bmc,host\nn1,https://a,a\nn1,https://b,b\n", "nodes.csv:3: node 'n1' is listed twice"),
        ("name,bmc\nn1,https://a,x\n", "3 cells, and 2 columns"),
    ],
)
def test_a_table_that_makes_no_sense(home: Path, lab: LabDirectory, text: str, why: str) -> None:
    (home / "nodes.csv").write_text(text)
    done = reconciler("init", *flags(lab))
    assert (done.code, why in done.err) == (64, True), done.err


def test_adopt_takes_over_what_drifted_and_drift_is_gone(lab: LabDirectory) -> None:
    """In the lab's own spec, in which nodes differ from the start."""

    def open_drift() -> dict[tuple[str, str], str]:
        found = lab.run("drift", "-o", "json").json["items"]
        return {(i["node"], i["path"]): i["kind"] for i in found if i["concern"] != "gate"}

    before = open_drift()
    assert before
    words: list[str | Path] = ["adopt", "gpu-*", lab.spec, "--endpoints", lab.endpoints]
    dry = reconciler(*words, "--dry-run", "-o", "json")
    assert open_drift() == before
    assert dry.json["written"] is False
    done = reconciler(*words, "-o", "json").json
    assert done["written"] is True
    assert done["diff"] == dry.json["diff"]
    adopted = {(item["node"], item["path"]) for item in done["adopted"]}
    assert adopted
    left = open_drift()
    assert left.keys() == before.keys() - adopted
    assert all(
        any(path in sentence for sentence in done["left"])
        for _, path in left
        if not path.startswith(("image.", "health."))
    )
    refused = reconciler("adopt", "gpu-0001.gate.certificate", lab.spec, "--endpoints", lab.endpoints)
    assert (refused.code, "never adopted" in refused.err) == (8, True)


def test_nodes_that_are_ill_or_silent_are_left_alone_and_named(home: Path, lab: LabDirectory) -> None:
    lab.fault("gpu-0001", "xid_79")  # last of all: what the kernel has logged stays until a boot
    lab.fault("gpu-0002", "ssh_refused")
    try:
        done = reconciler("init", *flags(lab))
        assert done.code == 4, done.err
        assert "gpu-0001 is left alone (state: quarantined): unhealthy" in done.err
        assert "gpu-0002 is not in it: SSH" in done.err
        assert reconciler("plan", "--detailed-exitcode").code == 0
        lab.fault("gpu-0003", "ssh_refused")
        lab.fault("gpu-0001", "ssh_refused")
        none = reconciler("init", "other", *flags(lab))
        assert (none.code, "no node could be read" in none.err, Path("other").exists()) == (4, True, False)
    finally:
        for node in ("gpu-0001", "gpu-0002", "gpu-0003"):
            lab.clear(node)
