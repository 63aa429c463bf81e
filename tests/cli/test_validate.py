"""A spec that is wrong: 3, every problem at once with its place, and nothing contacted; whatever the command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from tests.cli.shell import ROOT, SPEC, reconciler

# file, old text, new text, what is said
PROBLEMS = [
    ("fleet.yaml", "cluster: main", "clustre: main", "did you mean 'cluster'"),
    ("fleet.yaml", "credentials: bmc", "password: hunter2", "unknown key 'password'"),
    ("fleet.yaml", "tls: {ca: pki/bmc-ca.pem}", "tls: {}", "ca and insecure exclude each other"),
    ("fleet.yaml", "tls: {ca: pki/bmc-ca.pem}", "tls: {ca: ../../etc/passwd}", "is not a path below the spec"),
    ("fleet.yaml", "nodes: 2}", "nodes: 0}", "never allows any node"),
    ("fleet.yaml", "mode: correct", "mode: propose", "mode: propose needs forge, with kind, repository and token"),
    ("fleet.yaml", "redfish: 30s", "redfish: soon", "soon"),
    ("fleet.yaml", "expires: 2027-06-30", "expires: 2027-06-31", "expires"),
    ("pools/train.yaml", "persona: training", "persona: trianing", "did you mean 'training'"),
    ("pools/train.yaml", "gpu-a[005-008]", "gpu-a[005-009]", "4 values for 5 names"),
    ("pools/train.yaml", "gpu-a[005-008]", "gpu-a[001-004]", "declared twice"),
    ("pools/train.yaml", 'version: "2026.11.1"', 'version: "2026.11.2"', "2026.11.2"),
    ("pools/train.yaml", "https://10.20.0.[15-18]", "http://10.20.0.[15-18]", "https"),
    ("images.yaml", "sha256: ", "sha256: 00", "sha256"),
    ("acceptance.yaml", "tool: nccl-tests", "tool: ncl-tests", "did you mean 'nccl-tests'"),
    ("pools/train.yaml", "metadata: {name: train}", "metadata: {name: train, name: twice}", "name"),
    ("personas.yaml", "kind: Persona", "kind: Persna", "did you mean 'Persona'"),
    (
        "fleet.yaml",
        "mode: correct",
        "mode: correct, forge: {kind: github, repository: acme/fleet, token: forge}",
        "forge is for mode: propose alone",
    ),
    (
        "fleet.yaml",
        "mode: correct",
        "mode: propose, forge: {kind: github, repository: fleet, token: forge}",
        "repository",
    ),
    ("fleet.yaml", "mode: correct", "mode: propose, forge: {repository: acme/fleet, kind: github}", "token"),
]


def spoil(spec: Path, *edits: tuple[str, str, str, str]) -> None:
    for file, old, new, _ in edits:
        path = spec / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("edit", PROBLEMS, ids=lambda edit: edit[2][:40])
def test_a_problem_is_reported_with_its_place(spec: Path, edit: tuple[str, str, str, str]) -> None:
    spoil(spec, edit)
    done = reconciler("validate", spec)
    assert done.code == 3
    assert edit[3] in done.out
    assert f"{spec}/{edit[0]}:" in done.out
    assert "nothing was contacted" in done.err


SEVERAL = (PROBLEMS[0], PROBLEMS[8], PROBLEMS[14])


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "{spec}"], ["drift", "{spec}"], ["plan", "{spec}"], ["observe", "{spec}"], ["doctor", "{spec}"],
        ["explain", "gpu-a001", "{spec}"], ["apply", "{spec}", "--plan", "{plan}", "--yes"],
        ["hold", "gpu-a001", "--reason", "x", "--spec", "{spec}"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_every_command_refuses_an_invalid_spec_before_it_contacts_anything(
    spec: Path, words: list[str], tmp_path: Path, demo: Path
) -> None:
    """The addresses of the example lead nowhere; a command that tried them would take 30 seconds, and say so."""
    spoil(spec, *SEVERAL)
    done = reconciler(*(word.format(spec=spec, plan=demo) for word in words))
    assert done.code == 3, done.err
    said = done.out + done.err
    if words[0] == "doctor":
        assert f"reconciler validate {spec} shows all problems" in said
    else:
        assert all(problem in said for _, _, _, problem in SEVERAL)
    assert "observing" not in done.err
    assert not (tmp_path / "state").exists(), "it came as far as the ledger"


def test_a_valid_spec_is_reported_as_valid(spec: Path) -> None:
    done = reconciler("validate", spec)
    assert (done.code, done.err) == (0, "")
    assert "is valid: fleet demo, 2 pools, 12 nodes" in done.out


def test_problems_as_json(spec: Path) -> None:
    assert reconciler("validate", spec, "--output", "json").json == {"valid": True, "diagnostics": []}
    spoil(spec, *SEVERAL)
    done = reconciler("validate", spec, "--output", "json")
    assert done.code == 3
    assert done.json["valid"] is False
    found = done.json["diagnostics"]
    assert {entry["severity"] for entry in found} == {"error"}
    assert all(entry["at"]["line"] and entry["at"]["column"] and entry["problem"] for entry in found)
    assert {Path(entry["at"]["file"]).name for entry in found} == {"fleet.yaml", "train.yaml", "acceptance.yaml"}


def test_problems_as_markdown(spec: Path) -> None:
    spoil(spec, *SEVERAL)
    done = reconciler("validate", spec, "--output", "markdown")
    assert done.code == 3
    assert done.out.startswith("## 🔴 The spec is invalid")
    assert done.out.count("\n- ") == 3


def test_an_empty_directory_is_no_spec(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert reconciler("validate", tmp_path / "empty").code == 3


def test_a_warning_is_no_error_and_goes_to_stderr_elsewhere(spec: Path, demo: Path) -> None:
    """What an ignore rule that has expired says."""
    spoil(spec, ("fleet.yaml", "expires: 2027-06-30", "expires: 2020-06-30", ""))
    validated, drifted = reconciler("validate", spec), reconciler("drift", spec, "--observation", demo)
    assert (validated.code, drifted.code) == (0, 4)
    told = [line for line in validated.out.splitlines() if line.startswith("warning: ")]
    for line in told:
        assert line in drifted.err
        assert line not in drifted.out


# --- schemas ---------------------------------------------------------------------------------------------------------


def test_the_schemas_in_the_tree_are_those_of_this_version(tmp_path: Path) -> None:
    done = reconciler("schema", "--write", tmp_path / "schemas")
    assert done.code == 0
    written = {path.name: path.read_text() for path in (tmp_path / "schemas").iterdir()}
    assert written == {path.name: path.read_text() for path in (ROOT / "schemas").glob("*.json")}
    assert sorted(done.out.split()) == sorted(str(tmp_path / "schemas" / name) for name in written)


def test_every_schema_that_is_listed_is_printed() -> None:
    names = reconciler("schema").out.split()
    assert {"fleet", "node-pool", "plan", "observation", "drift-report", "certificate"} <= set(names)
    for name in names:
        schema = reconciler("schema", name).json
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("name", "words"), [("plan", ["plan"]), ("drift-report", ["drift"])], ids=["plan", "drift-report"]
)
def test_documents_are_as_their_schemas_say(name: str, words: list[str], demo: Path) -> None:
    document = reconciler(*words, SPEC, "--observation", demo, "--output", "json").json
    schema = reconciler("schema", name).json
    jsonschema.Draft202012Validator(schema).validate(document)
    jsonschema.Draft202012Validator(reconciler("schema", "observation").json).validate(json.loads(demo.read_text()))


# --- the spec at a revision ------------------------------------------------------------------------------------------


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(("git", *identity, *words), cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(spec: Path) -> Path:
    """A git repository with the spec in a directory, committed."""
    git(spec.parent, "init", "-q")
    git(spec.parent, "add", spec.name)
    git(spec.parent, "commit", "-q", "-m", "first")
    return spec.parent


def test_the_commit_of_the_spec_is_in_every_document(repository: Path, spec: Path, demo: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert commit[:12] in reconciler("validate", spec).out
    for name in ("drift", "plan"):
        human = reconciler(name, spec, "--observation", demo)
        assert commit[:12] in human.out
        assert "uncommitted" not in human.out
        source = reconciler(name, spec, "--observation", demo, "--output", "json").json["source"]
        assert (source["commit"], source["dirty"]) == (commit, False)
    assert commit[:12] in reconciler("explain", "gpu-a001", spec, "--offline").out


@pytest.mark.parametrize("change", ["changed", "new file"])
def test_uncommitted_changes_are_reported(repository: Path, spec: Path, demo: Path, change: str) -> None:
    if change == "changed":
        spoil(spec, ("personas.yaml", 'vm.swappiness: "1"', 'vm.swappiness: "5"', ""))
    else:
        policy = (spec / "remediation.yaml").read_text()
        (spec / "more.yaml").write_text(policy.replace("name: standard", "name: another"))
    for words in (["drift"], ["plan"], ["drift", "--output", "markdown"], ["plan", "--output", "markdown"]):
        done = reconciler(words[0], spec, "--observation", demo, *words[1:])
        assert "uncommitted changes" in done.out
    assert "uncommitted changes" in reconciler("validate", spec).out
    assert reconciler("plan", spec, "--observation", demo, "--output", "json").json["source"]["dirty"] is True


def test_a_revision_is_read_whatever_lies_in_the_work_tree(repository: Path, spec: Path, demo: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    spoil(spec, ("personas.yaml", 'vm.swappiness: "1"', 'vm.swappiness: "5"', ""))
    git(repository, "commit", "-q", "-a", "-m", "second")
    (spec / "fleet.yaml").write_text("nonsense: [")
    assert reconciler("validate", spec).code == 3
    for rev, wanted in (("HEAD", "5"), ("HEAD~1", "1"), (first, "1")):
        document = reconciler("explain", "gpu-a001", spec, "--rev", rev, "--offline", "--output", "json").out
        done = reconciler("plan", spec, "--rev", rev, "--observation", demo, "--output", "json")
        assert done.code == 4, done.err
        source = done.json["source"]
        assert (source["commit"], source["dirty"]) == (git(repository, "rev-parse", rev), False)
        assert f'"{wanted}"' in document


def test_a_spec_that_is_gone_from_the_work_tree_is_read_at_its_revision(repository: Path, spec: Path) -> None:
    for path in sorted(spec.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    spec.rmdir()
    assert reconciler("validate", spec).code == 64
    done = reconciler("validate", spec, "--rev", "HEAD")
    assert done.code == 0, done.err


# --- beside the line of a change -------------------------------------------------------------------------------------


def test_problems_are_annotations_in_a_job_of_github(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(spec, *SEVERAL)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = reconciler("validate", spec)
    assert done.code == 3
    commands = [line for line in done.err.splitlines() if line.startswith("::")]
    assert len(commands) == 3
    assert (
        f"::error file={spec}/fleet.yaml,line=6,col=3::spec: unknown key 'clustre' (did you mean 'cluster'?)"
        in commands
    )
    assert all("::" not in line for line in done.out.splitlines() if line.startswith("::"))
    alone = reconciler("validate", spec, "-o", "github")
    assert (alone.code, alone.out.splitlines()) == (3, commands)
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "::error" not in reconciler("validate", spec).err


def test_an_annotation_is_one_command_whatever_the_spec_says(spec: Path) -> None:
    """GitHub: a command is a line that begins with ::, and ##[...] anywhere."""
    name = "a,line=1::b%0A##[error]c\x1b[2J"
    (spec / "pools" / f"{name}.yaml").write_text('kind: "::set-env name=x::y\\n::error::z"\n')
    lines = reconciler("validate", spec, "-o", "github").out.splitlines()
    assert lines
    for line in lines:
        head, _, words = line.removeprefix("::").partition("::")
        kind, _, properties = head.partition(" ")
        assert kind == "error"
        assert [pair.partition("=")[0] for pair in properties.split(",")] == ["file", "line", "col"]
        assert "%250A" in properties
        assert "##[" not in line
        assert words


def test_problems_are_a_code_quality_report_for_gitlab(spec: Path) -> None:
    """Keys and severities as in GitLab's "Code Quality report format"."""
    assert reconciler("validate", spec, "-o", "gitlab").json == []
    spoil(spec, *SEVERAL)
    done = reconciler("validate", spec, "-o", "gitlab")
    assert done.code == 3
    assert len({entry["fingerprint"] for entry in done.json}) == 3
    for entry in done.json:
        assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert entry["location"]["lines"]["begin"] > 0
        assert Path(entry["location"]["path"]).is_file()
        assert entry["description"]
