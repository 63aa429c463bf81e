"""`plan --base`: what a pull request causes, told of machines that are reached as its base says."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.converge.approval import stale_because
from reconciler.drivers.ledger import SqlLedger
from reconciler.gate import certificate as gate
from reconciler.model.documents import load
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.spec import load_spec
from tests.builders import carried_by
from tests.cli.shell import SPEC, Done, reconciler

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
]

ISSUED = timedelta(days=7)


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(("git", *identity, *words), cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass
class Change:
    """A repository whose branch `main` holds the worked example; what is edited is in the work tree."""

    spec: Path
    ledger: Path
    options: list[str | Path] = field(default_factory=list)

    def edit(self, file: str, *pairs: tuple[str, str]) -> None:
        path = self.spec / file
        text = path.read_text()
        for old, new in pairs:
            assert old in text, f"{old!r} is not in {file}"
            text = text.replace(old, new)
        path.write_text(text)

    def commit(self, message: str = "change") -> str:
        git(self.spec.parent, "add", "-A")
        git(self.spec.parent, "commit", "-q", "-m", message)
        return git(self.spec.parent, "rev-parse", "HEAD")

    def plan(self, *words: str | Path, base: str = "main", env: Mapping[str, str] | None = None) -> Done:
        ledger = ("--ledger", self.ledger, "--create-ledger")
        return reconciler("plan", self.spec, "--base", base, *ledger, *self.options, *words, env=env)

    def json(self, *words: str | Path, **options: Any) -> dict[str, Any]:
        done = self.plan("--output", "json", *words, **options)
        assert done.out, done.err
        document: dict[str, Any] = done.json
        return document

    def line(self, file: str, text: str) -> str:
        """file:line of the first line with this text."""
        number = next(at for at, line in enumerate((self.spec / file).read_text().splitlines(), 1) if text in line)
        return f"{self.spec / file}:{number}:"


@pytest.fixture
def change(spec: Path, tmp_path: Path) -> Change:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("*\n!fleet-spec/\n!fleet-spec/**\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    return Change(spec, tmp_path / "ledger.sqlite")


@pytest.fixture
def settled(change: Change, clean: Path) -> Change:
    """All nodes as specified, in service and certified: whatever a plan has, the change put there."""
    certify(change.ledger, clean)
    change.options = ["--observation", clean]
    return change


def certify(ledger: Path, observation: Path, **metrics: float) -> None:
    """Certificates for the nodes as they were observed, with the same metrics, or those of a node."""
    fleet = load_spec(SPEC, directory=str(SPEC))
    seen = load(Observation, observation.read_bytes(), name=str(observation))
    kept = SqlLedger(ledger)
    for name, desired in fleet.nodes.items():
        acceptance = desired.profile.acceptance
        assert acceptance is not None
        binding = gate.binding_of(desired, seen.nodes[name], gate.tests_digest(acceptance))
        assert isinstance(binding, Binding), binding
        results = tuple(
            TestResult(
                test.name, test.tool, Verdict.PASS, (),
                carried_by(test, binding)
                | {t.metric: metrics.get(name.replace("-", "_"), 480.0) if t.metric == "busbw_peak" else 6000.0
                   for t in test.thresholds},
            )
            for phase in acceptance.phases for test in phase.tests
        )  # fmt: skip
        kept.save_certificate(Certificate("1.0", name, datetime.now(UTC) - ISSUED, binding, results))
    kept.close()


def paths(items: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(item["node"], item["path"]) for item in items}


# --- what is caused -----------------------------------------------------------------------------------------------


def test_no_change_causes_nothing(settled: Change) -> None:
    done = settled.plan("--detailed-exitcode")
    assert (done.code, "it makes no difference to any node" in done.out) == (0, True), done.out + done.err
    found = settled.json()["change"]
    assert not any(value for key, value in found.items() if key not in ("base", "head", "nodes"))
    assert found["nodes"] == 12


def test_drift_from_before_the_change_is_listed_separately(change: Change, demo: Path) -> None:
    change.options = ["--observation", demo]
    change.edit("personas.yaml", ('vm.swappiness: "1"', 'vm.swappiness: "5"'))
    document = change.json()
    found = document["change"]
    assert {path for _, path in paths(found["caused"])} == {"host.sysctls.vm.swappiness"}
    assert ("gpu-a001", "image.version") in paths(found["before"])
    assert all(node.startswith("gpu-a") for node, _ in paths(found["caused"]))
    assert set(found["touched"]) == {"service_restart"}
    assert (found["base"]["rev"], found["head"]["dirty"]) == ("main", True)
    text = change.plan().out
    caused, _, before = text.partition("Drifted before")
    assert "Caused by the change" in caused
    assert "image.version" in before
    assert "image.version" not in caused


def test_a_new_image_is_listed_by_class_with_names_and_hours(settled: Change) -> None:
    settled.edit("pools/infer.yaml", ('"2026.11.1"', '"2026.10.2"'))
    done = settled.plan("--detailed-exitcode")
    assert done.code == 2, done.err
    assert "! reimage   gpu-b[001-004] (4)" in done.out
    found = settled.json()["change"]
    assert list(found["touched"]) == ["reimage"]
    [place] = found["set_by"]["image.version"]
    assert place.startswith(settled.line("pools/infer.yaml", '"2026.10.2"'))
    assert place in done.out
    assert found["gpu_hours_out"] == pytest.approx(settled.json()["totals"]["gpu_hours_out"])
    assert [(void["node"], void["reasons"]) for void in found["void_certificates"]] == [
        (f"gpu-b00{at}", ["issued for another image"]) for at in range(1, 5)
    ]
    assert found["void_certificates"][0]["valid_until"].startswith(f"{datetime.now(UTC) + timedelta(days=83):%Y-%m-%d}")


def test_work_that_the_change_saves_is_listed(change: Change, demo: Path) -> None:
    change.options = ["--observation", demo]
    change.edit("pools/train.yaml", ("  labels: {topology.example.com/fabric: f1}\n", ""))
    found = change.json()["change"]
    assert paths(found["removed"]) == {("gpu-a006", "cluster.labels.topology.example.com/fabric")}
    assert found["caused"] == []


def test_waves_do_not_shrink_what_a_change_comes_to(settled: Change) -> None:
    """Most of a pool waits for its canary, and is disrupted all the same."""
    kept = SqlLedger(settled.ledger)
    for at in range(1, 9):
        values = {"host.sysctls.vm.swappiness": "1", "image.version": "2026.11.1"}
        values |= {"image.sha256": "8ad0c6257dc8c56ec68084e5edddba514f86f147e26bbba9a1995c2b0e245262"}
        kept.remember_applied(f"gpu-a00{at}", values, "", "", datetime.now(UTC) - timedelta(days=30))
    kept.close()
    settled.edit("pools/train.yaml", ('"2026.11.1"', '"2026.10.2"'))
    document = settled.json()
    [rollout] = document["rollouts"]
    assert len(rollout["waves"]) > 1
    assert document["change"]["touched"] == {"reimage": [f"gpu-a00{at}" for at in range(1, 9)]}


def test_what_the_observation_was_not_asked_for_is_not_called_clean(settled: Change) -> None:
    settled.edit("personas.yaml", ('vm.swappiness: "1"', 'vm.swappiness: "1", vm.new: "7"'))
    done = settled.plan()
    assert "Newly managed, and not read yet (8)" in done.out
    assert {path for _, path in paths(settled.json()["change"]["unseen"])} == {"host.sysctls.vm.new"}


def test_other_edits_of_the_fleet_are_named(settled: Change) -> None:
    settled.edit("fleet.yaml", ('nodes: "34%"', 'nodes: "50%"'), ('reboot: "100%"', "reboot: 5"))
    done = settled.plan("--detailed-exitcode")
    assert (done.code, "budgets, guards edited" in done.out) == (2, True)


def test_nodes_that_are_put_aside_are_named(settled: Change) -> None:
    settled.edit("pools/infer.yaml", ("  persona: inference\n", "  persona: inference\n  state: quarantined\n"))
    assert settled.json()["change"]["states"] == {"quarantined": [f"gpu-b00{at}" for at in range(1, 5)]}
    assert "4 nodes quarantined" in settled.plan().out


# --- thresholds ---------------------------------------------------------------------------------------------------


def test_a_moved_bar_is_judged_by_stored_metrics(change: Change, clean: Path) -> None:
    certify(change.ledger, clean, gpu_a003=455.0, gpu_b002=441.2)
    change.options = ["--observation", clean]
    change.edit("acceptance.yaml", ("min: 440", "min: 460"))
    document = change.json()
    found = document["change"]
    assert {failure["node"]: failure["reasons"] for failure in found["below_bar"]} == {
        "gpu-a003": ["nccl: busbw_peak 455 < 460"],
        "gpu-b002": ["nccl: busbw_peak 441.2 < 460"],
    }
    assert len(found["above_bar"]) == 10
    assert paths(found["caused"]) == {("gpu-a003", "gate.certificate"), ("gpu-b002", "gate.certificate")}
    assert found["void_certificates"] == []  # nothing but the bar voids them
    assert set().union(*found["touched"].values()) == {"gpu-a003", "gpu-b002"}
    text = change.plan().out
    assert "nccl: busbw_peak < 460  441.2 to 455" in text
    assert "10 of 12 clear every bar that the change moves" in text
    [bar] = found["bars"]
    assert [one["node"] for one in bar["below"]] == ["gpu-b002", "gpu-a003"]
    assert sum(bar["spreads"][0]["histogram"]["counts"]) == 12
    assert "nccl: busbw_peak in GB/s: >= 440 becomes >= 460:" in text
    assert "gpu-b002 441.2 GB/s (4.1% below 460); gpu-a003 455 GB/s (1.1% below 460)" in " ".join(text.split())
    assert "<- old bar >= 440" in text
    assert "for each day until nodes that fail again are repaired" in " ".join(text.split())
    change.edit("acceptance.yaml", ("min: 460", "min: 400"))
    text = change.plan().out
    assert "it makes no difference to any node" in text


def test_nodes_without_metrics_do_not_pass_for_good_ones(change: Change, clean: Path) -> None:
    change.options = ["--observation", clean]
    change.edit("acceptance.yaml", ("min: 440", "min: 460"))
    found = change.json()["change"]
    assert (found["below_bar"], found["above_bar"], len(found["unmeasured"])) == ([], [], 12)
    text = change.plan().out
    assert "12 nodes without metrics for a bar that the change moves" in text
    assert "Below a bar that the change moves (0):\n  Nothing was run; no metrics are stored of gpu-" in text


def test_another_test_voids_what_the_old_one_proved(settled: Change) -> None:
    settled.edit("acceptance.yaml", ("args: {level: 2}", "args: {level: 3}"))
    found = settled.json()["change"]
    assert {tuple(void["reasons"]) for void in found["void_certificates"]} == {("dcgm: the test has changed since",)}
    assert len(found["void_certificates"]) == 12
    assert found["below_bar"] == []


# --- whom it reaches ----------------------------------------------------------------------------------------------


def test_every_edit_of_an_endpoint_is_listed_with_its_place(settled: Change) -> None:
    key = (settled.spec / "pki" / "ssh-host-ca.pub").read_text()
    (settled.spec / "pki" / "other.pub").write_text(
        key.replace("AAAAC3NzaC1lZDI1NTE5AAAAI", "AAAAC3NzaC1lZDI1NTE5AAAAJ")
    )
    settled.edit(
        "fleet.yaml",
        ("credentials: bmc", "credentials: theirs"),
        ("tls: {ca: pki/bmc-ca.pem}", "tls: {insecure: true}"),
        ("credentials: ssh", "credentials: their-ssh"),
        ("user: root", "user: them"),
        ("authorities: [pki/ssh-host-ca.pub]", "authorities: [pki/other.pub]"),
        ("https://10.20.0.2:8443", "https://10.66.0.2:8443"),
        ("certificate: installer-tls", "certificate: their-tls"),
        ("hostCa: ssh-host-ca", "hostCa: their-ca"),
    )
    settled.edit("cluster.yaml", ("kubeconfig: kubeconfig", "kubeconfig: theirs"))
    settled.edit("pools/train.yaml", ("https://10.20.0.[11-14]", "https://10.66.0.[11-14]"))
    document = settled.json()
    found = {(e["subject"], e["what"]): e for e in document["change"]["endpoints"]}
    whole = {what for subject, what in found if subject == "fleet"}
    assert whole == {
        "redfish.credentials", "redfish.tls", "ssh.credentials", "ssh.user", "ssh.hostKeys", "cluster.kubeconfig",
        "installer.url", "installer.certificate", "installer.hostCa", "redfish.pduCredentials",
    }  # fmt: skip
    assert {subject for subject, what in found if what == "bmc"} == {f"gpu-a00{at}" for at in range(1, 5)}
    moved = found["gpu-a002", "bmc"]
    assert (moved["before"], moved["after"]) == ("https://10.20.0.12", "https://10.66.0.12")
    assert moved["position"].startswith(settled.line("pools/train.yaml", "10.66.0."))
    tls = found["fleet", "redfish.tls"]
    assert tls["position"].startswith(settled.line("fleet.yaml", "insecure: true"))
    assert (tls["before"].startswith("CA sha256:"), tls["after"]) == (True, "not verified")
    place = found["fleet", "cluster.kubeconfig"]["position"]
    assert place.startswith(settled.line("cluster.yaml", "kubeconfig: theirs"))
    assert document["insecure"] == []  # the plan was made with base's CA
    assert document["change"]["caused"] == []
    text = settled.plan().out
    assert "gpu-a[001-004] (4)  bmc " in text
    assert "14 addresses or credentials edited" in text


def test_a_renamed_fleet_is_planned_from_the_ledger_of_its_old_name(change: Change, clean: Path) -> None:
    change.edit("fleet.yaml", ("metadata: {name: demo}", "metadata: {name: other}"))
    document = change.json("--observation", clean)
    assert document["fleet"] == "demo"
    assert ("fleet", "name") in {(e["subject"], e["what"]) for e in document["change"]["endpoints"]}


class Listener:
    """A port that counts who comes."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.visits = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                visitor, _ = self.server.accept()
            except OSError:
                return
            self.visits += 1
            visitor.close()


@contextmanager
def listening() -> Iterator[Callable[[], Listener]]:
    """Makes listeners, and ends them."""
    made: list[Listener] = []

    def make() -> Listener:
        made.append(Listener())
        return made[-1]

    try:
        yield make
    finally:
        for listener in made:
            listener.server.close()


SMALL = """
apiVersion: reconciler.dev/v1alpha1
kind: Fleet
metadata: {{name: small}}
spec:
  redfish: {{credentials: {secret}, tls: {{ca: pki/bmc-ca.pem}}}}
  ssh: {{credentials: {secret}-ssh, hostKeys: {{authorities: [pki/ssh-host-ca.pub]}}}}
  observation: {{tolerate: "100%"}}
---
apiVersion: reconciler.dev/v1alpha1
kind: NodePool
metadata: {{name: p}}
spec:
  host: {{sysctls: {{vm.swappiness: "{swappiness}"}}}}
  nodes:
"""


def small(spec: Path, secret: str, swappiness: int, nodes: Mapping[str, tuple[int, int]]) -> None:
    """A spec of nodes on loopback: name -> ports of BMC and host."""
    for path in spec.rglob("*.yaml"):
        path.unlink()
    rows = [
        f'    - {{name: {name}, bmc: "https://127.0.0.1:{bmc}", host: "127.0.0.1:{host}"}}\n'
        for name, (bmc, host) in nodes.items()
    ]
    (spec / "fleet.yaml").write_text(SMALL.format(secret=secret, swappiness=swappiness) + "".join(rows))


def secrets_of(tmp_path: Path, *names: str) -> Path:
    """Secrets that leave a mark when they are resolved."""
    answer = json.dumps({"username": "u", "password": "p"})
    (tmp_path / "asked").mkdir(exist_ok=True)
    key = tmp_path / "key"
    if not key.exists():
        subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)), check=True)
    said = {}
    for name in names:
        told = f"cat {key}" if "ssh" in name else f"echo '{answer}'"
        said[name] = {"exec": ["sh", "-c", f"touch {tmp_path}/asked/{name}; {told}"], "allow": ["127.0.0.0/8"]}
    path = tmp_path / "secrets.yaml"
    path.write_text(json.dumps({"secrets": said}))
    return path


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_nothing_that_head_names_is_contacted_or_resolved(change: Change, tmp_path: Path) -> None:
    """The attack of conventions S3: a change sends a node's addresses, and the names of secrets, elsewhere."""
    with listening() as listener:
        ours = {name: (listener(), listener()) for name in ("n1", "n2")}
        theirs = {name: (listener(), listener()) for name in ("n1", "n3")}
        base = {name: (bmc.port, host.port) for name, (bmc, host) in ours.items()}
        head = base | {name: (bmc.port, host.port) for name, (bmc, host) in theirs.items()}
        small(change.spec, "bmc", 1, base)
        change.commit()
        small(change.spec, "evil", 5, head)
        env = {"RECONCILER_SECRETS": str(secrets_of(tmp_path, "bmc", "bmc-ssh", "evil", "evil-ssh"))}
        document = change.json(env=env)
        assert all(place.visits > 0 for pair in ours.values() for place in pair)
        assert [place.visits for pair in theirs.values() for place in pair] == [0, 0, 0, 0]
    assert {path.name for path in (tmp_path / "asked").iterdir()} == {"bmc", "bmc-ssh"}
    assert document["change"]["joining"] == ["n3"]
    assert document["nodes"]["n3"]["blocked"]["code"] == "joining"
    assert {(e["subject"], e["what"]) for e in document["change"]["endpoints"]} == {
        ("fleet", "redfish.credentials"), ("fleet", "redfish.pduCredentials"), ("fleet", "ssh.credentials"),
        ("n1", "bmc"), ("n1", "host"), ("n3", "bmc"), ("n3", "host"),
    }  # fmt: skip


def test_offline_nobody_is_contacted_and_no_secret_resolved(change: Change, tmp_path: Path) -> None:
    with listening() as listener:
        one, other = listener(), listener()
        small(change.spec, "bmc", 1, {"n1": (one.port, one.port)})
        change.commit()
        small(change.spec, "evil", 5, {"n1": (other.port, other.port)})
        seen = tmp_path / "seen.json"
        at = datetime.now(UTC).isoformat()
        silent = {"at": at, "reason": "unreachable", "detail": ""}
        node = {"node": "n1", "hot": silent, "inventory": silent, "host": silent, "member": silent}
        seen.write_text(json.dumps({
            "format_version": "1.0", "fleet": "small", "spec_commit": "", "started_at": at, "finished_at": at,
            "nodes": {"n1": node}, "cluster_version": "", "kubectl_version": "",
        }))  # fmt: skip
        env = {"RECONCILER_SECRETS": str(secrets_of(tmp_path, "bmc", "bmc-ssh", "evil", "evil-ssh"))}
        done = change.plan("--observation", seen, env=env)
        assert (done.code, one.visits, other.visits) == (0, 0, 0), done.err
    assert list((tmp_path / "asked").iterdir()) == []


# --- nodes that come and go ---------------------------------------------------------------------------------------


def test_a_node_that_joins_is_left_alone_with_a_reason(settled: Change) -> None:
    added = ("gpu-b[001-004]", "gpu-b[001-005]"), ("[21-24]", "[21-25]"), ("SN-B[001-004]", "SN-B[001-005]")
    settled.edit("pools/infer.yaml", *added)
    document = settled.json()
    plan = document["nodes"]["gpu-b005"]
    assert (plan["actions"], plan["blocked"]["code"]) == ([], "joining")
    assert "nobody contacts it before the change is merged" in plan["situation"]
    assert document["change"]["joining"] == ["gpu-b005"]
    assert document["scope"] == {"limit": [], "exclude": [], "selected": 13, "total": 13}
    assert [e["before"] for e in document["change"]["endpoints"]] == ["", ""]
    done = settled.plan("--detailed-exitcode")
    assert (done.code, "1 node added" in done.out) == (2, True)


def test_forgetting_too_many_is_refused(settled: Change) -> None:
    fewer = ("gpu-b[001-004]", "gpu-b[001-002]"), ("[21-24]", "[21-22]"), ("SN-B[001-004]", "SN-B[001-002]")
    settled.edit("pools/infer.yaml", *fewer)
    done = settled.plan()
    assert done.code == 8
    assert "it would forget 2 of 12 nodes, and 1 is the most at once (gpu-b003, gpu-b004)" in done.out
    assert "! forget    gpu-b[003-004] (2)" in done.out
    found = settled.json()
    assert found["change"]["forgotten"] == ["gpu-b003", "gpu-b004"]
    assert "gpu-b003" not in found["nodes"]


def test_one_that_leaves_can_be_selected(settled: Change) -> None:
    fewer = ("gpu-b[001-004]", "gpu-b[001-003]"), ("[21-24]", "[21-23]"), ("SN-B[001-004]", "SN-B[001-003]")
    settled.edit("pools/infer.yaml", *fewer)
    found = settled.json("--limit", "gpu-b004,gpu-a001")
    assert (found["change"]["forgotten"], list(found["nodes"])) == (["gpu-b004"], ["gpu-a001"])
    assert settled.json("--limit", "gpu-a001")["change"]["forgotten"] == []
    assert settled.plan("--limit", "gpu-x*").code == 64


# --- the plan as a document ---------------------------------------------------------------------------------------


def test_the_merged_commit_finds_its_plan_approved(settled: Change, tmp_path: Path) -> None:
    settled.edit("pools/infer.yaml", ('"2026.11.1"', '"2026.10.2"'))
    out = tmp_path / "plan.json"
    assert settled.plan("--out", out).code == 0
    settled.commit("the change")
    words = ["plan", settled.spec, "--ledger", settled.ledger, *settled.options, "--output", "json"]
    merged = load(Plan, reconciler(*words).out.encode(), name="merged")
    approved = load(Plan, out.read_bytes(), name="plan.json")
    assert approved.fingerprint == merged.fingerprint
    assert [name for name, node in merged.nodes.items() if node.actions] == [f"gpu-b00{at}" for at in range(1, 5)]
    for name, node in merged.nodes.items():
        assert node.fingerprint == approved.nodes[name].fingerprint
        assert stale_because(approved.nodes[name], node, begun=False) == ""


def test_the_plan_file_shows_the_change_as_it_was_printed(settled: Change, tmp_path: Path) -> None:
    settled.edit("pools/infer.yaml", ('"2026.11.1"', '"2026.10.2"'))
    out = tmp_path / "plan.json"
    told = settled.plan("--out", out)
    assert "Once it is merged:\n  reconciler apply" in told.err
    assert reconciler("show", out).out == told.out
    jsonschema.Draft202012Validator(reconciler("schema", "plan").json).validate(json.loads(out.read_text()))


def test_a_comment_has_what_disrupts_in_red_and_nothing_that_machines_format(
    change: Change, demo: Path, tmp_path: Path
) -> None:
    seen = json.loads(demo.read_text())
    firmware = seen["nodes"]["gpu-a003"]["inventory"]["value"]["firmware"]
    firmware["NIC0"]["version"] = "1 | <img src=x> @all"
    spoilt = tmp_path / "spoilt.json"
    spoilt.write_text(json.dumps(seen))
    change.edit("pools/infer.yaml", ('"2026.11.1"', '"2026.10.2"'))
    out = change.plan("--observation", spoilt, "--output", "markdown").out
    assert "> [!CAUTION]\n> Who is disturbed by this change:\n>\n> - **reimage**: gpu-b" in out
    assert "| firmware.nic0 | 28.43.1014 | 1 \\| \\<img src=x\\> @\u200ball | drifted | gpu-a003 |" in out


def test_a_comment_names_who_set_what(settled: Change) -> None:
    base = git(settled.spec.parent, "rev-parse", "HEAD")
    settled.edit("pools/infer.yaml", ('"2026.11.1"', '"2026.10.2"'))
    head = settled.commit("go back")
    out = settled.plan("--head", head, "--output", "markdown", base=base).out
    line = settled.line("pools/infer.yaml", "2026.10.2").replace("_", "\\_")
    [row] = [row for row in out.splitlines() if row.startswith(f"| {line}") and "| t |" in row]
    assert f"image.version | {head[:12]} | t |" in row.replace("\\", "")
    assert row.endswith("| go back |")


# --- revisions ----------------------------------------------------------------------------------------------------


def test_two_revisions_are_compared_whatever_lies_in_the_work_tree(settled: Change) -> None:
    first = git(settled.spec.parent, "rev-parse", "HEAD")
    settled.edit("pools/infer.yaml", ('"2026.11.1"', '"2026.10.2"'))
    second = settled.commit()
    (settled.spec / "fleet.yaml").write_text("nonsense: [")
    assert settled.plan().code == 3  # the work tree is head
    document = settled.json("--head", "HEAD", base="HEAD~1")
    assert (document["source"]["commit"], document["change"]["base"]["commit"]) == (second, first)
    assert set(document["change"]["touched"]) == {"reimage"}
    back = settled.json("--head", first, base=second)
    assert back["change"]["touched"] == {}  # what the way back would do at base, head leaves as it is
    assert {path for _, path in paths(back["change"]["removed"])} >= {"image.version"}


def test_commits_that_head_lacks_are_noted(settled: Change) -> None:
    git(settled.spec.parent, "checkout", "-q", "-b", "topic")
    git(settled.spec.parent, "checkout", "-q", "main")
    settled.edit("pools/infer.yaml", ('"2026.11.1"', '"2026.10.2"'))
    settled.commit()
    assert "head lacks 1 commit of base that changed the spec" in settled.plan("--head", "topic").out
    assert "head lacks" not in settled.plan("--head", "main", base="topic").out


@pytest.mark.parametrize("at", ["base", "head"])
def test_an_invalid_revision_is_reported_with_place_and_revision(settled: Change, at: str) -> None:
    settled.edit("personas.yaml", ("drain: {provider", "drian: {provider"))
    place = settled.line("personas.yaml", "drian:")
    settled.commit()
    settled.edit("personas.yaml", ("drian: {provider", "drain: {provider"))
    settled.commit()
    words = ["--head", "HEAD~1"] if at == "head" else []
    done = settled.plan(*words, base="HEAD~1" if at == "base" else "HEAD")
    assert (done.code, done.out) == (3, "")
    assert f"HEAD~1:{place}" in done.err
    assert "did you mean" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--base", "nope"], "'nope' is not a revision of"),
        (["--base", "main", "--head", "nope"], "'nope' is not a revision of"),
        (["--head", "main"], "--head needs --base"),
        (["--base", "main", "--rev", "main"], "--rev excludes --base and --head"),
    ],
)
def test_wrong_revisions_are_usage_errors(settled: Change, words: list[str], said: str) -> None:
    done = reconciler("plan", settled.spec, *settled.options, *words)
    assert (done.code, done.out) == (64, "")
    assert said in done.err


# --- rehearsed ----------------------------------------------------------------------------------------------------


def test_a_change_is_rehearsed_as_its_head_says_whatever_the_work_tree_has(settled: Change) -> None:
    base = git(settled.spec.parent, "rev-parse", "main")
    settled.edit("pools/infer.yaml", ('"2026.11.1"', '"2026.10.2"'))
    head = settled.commit("head")
    settled.edit("pools/train.yaml", ('"2026.11.1"', '"2026.10.2"'))
    words = ("--base", base, "--head", head, "--runs", "1", "--ledger", settled.ledger, "--output", "json")
    done = reconciler("rehearse", settled.spec, *words, *settled.options)
    assert done.code == 0, done.err
    told = done.json
    assert (told["base"]["commit"], told["source"]["commit"]) == (base, head)
    assert {wave["pool"] for wave in told["waves"]} <= {"infer"}
    assert told["nodes_with_changes"] == 4, "those of the pool that head changes"
    [run] = told["runs"]
    assert (run["converged"], run["failed"], told["broken"]) == (12, 0, [])
    assert told["p50_s"] > 1500, "they are reimaged"
