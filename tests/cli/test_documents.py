"""What commands print: stdout is the document, stderr is progress; and the codes of documents made from a file."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reconciler.converge.remember import remember_holds
from reconciler.drivers.ledger import SqlLedger
from reconciler.spec import load_spec
from tests.cli.shell import SPEC, command, ended, reconciler, started

FROM_FILE = ["drift", "plan", "explain"]
OUTPUTS = ["human", "json", "markdown"]


def words(name: str, observation: Path, *more: str) -> list[str | Path]:
    return [name, *(["gpu-a007"] if name == "explain" else []), SPEC, "--observation", observation, *more]


# --- exit codes of what was found ------------------------------------------------------------------------------------


def tolerate(spec: Path, nodes: int) -> Path:
    path = spec / "fleet.yaml"
    text = path.read_text()
    assert "tolerate: 0" in text
    path.write_text(text.replace("tolerate: 0", f"tolerate: {nodes}"))
    return spec


@pytest.mark.parametrize("name", ["drift", "plan"])
def test_an_incomplete_observation_is_4_whatever_else_was_found(name: str, demo: Path) -> None:
    for more in ([], ["--detailed-exitcode"]):
        done = reconciler(name, SPEC, "--observation", demo, "--output", "json", *more)
        assert done.code == 4
        assert done.json["incomplete"] == ["gpu-a008"]
        assert done.json["tolerated"] is False
        assert done.json["changes"] is True, "4 hides no changes"


@pytest.mark.parametrize("name", ["drift", "plan"])
def test_as_many_as_the_spec_tolerates_may_be_silent(name: str, demo: Path, spec: Path) -> None:
    tolerate(spec, 1)
    plain = reconciler(name, spec, "--observation", demo, "--output", "json")
    assert plain.code == 0
    assert (plain.json["incomplete"], plain.json["tolerated"]) == (["gpu-a008"], True)
    assert reconciler(name, spec, "--observation", demo, "--detailed-exitcode").code == 2
    assert "could not be read" in reconciler(name, spec, "--observation", demo).out


@pytest.mark.parametrize("name", ["drift", "plan"])
def test_silent_nodes_are_only_those_that_were_selected(name: str, demo: Path) -> None:
    done = reconciler(name, SPEC, "--observation", demo, "--exclude", "gpu-a008", "--output", "json")
    assert done.code == 0
    assert done.json["incomplete"] == []
    assert done.json["scope"] == {"limit": [], "exclude": ["gpu-a008"], "selected": 11, "total": 12}


@pytest.mark.parametrize("name", ["drift", "plan"])
def test_a_silent_node_alone_is_never_0_with_detailed_exitcode(name: str, demo: Path, spec: Path) -> None:
    """Conventions E3: `drift` with unreachable nodes is never 0, where differences are asked for."""
    tolerate(spec, 1)
    only: list[str | Path] = [name, spec, "--observation", demo, "--limit", "gpu-a008"]
    assert reconciler(*only).code == 0
    assert reconciler(*only, "--detailed-exitcode").code == 2


@pytest.mark.parametrize("name", ["drift", "plan"])
def test_nodes_without_a_certificate_are_changes(name: str, clean: Path) -> None:
    assert reconciler(name, SPEC, "--observation", clean).code == 0
    assert reconciler(name, SPEC, "--observation", clean, "--detailed-exitcode").code == 2


# --- documents -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FROM_FILE)
def test_json_is_all_there_is_on_stdout(name: str, demo: Path) -> None:
    done = reconciler(*words(name, demo, "--output", "json"))
    assert isinstance(done.json, dict)
    assert "{" not in done.err


def test_show_gives_the_same_documents_from_their_files(demo: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    planned = {
        output: reconciler("plan", SPEC, "--observation", demo, "--out", plan, "--output", output).out
        for output in OUTPUTS
    }
    drift = tmp_path / "drift.json"
    drift.write_text(reconciler("drift", SPEC, "--observation", demo, "--output", "json").out)
    for output in OUTPUTS:
        again = reconciler("show", plan, "--output", output)
        assert again.code == 0
        assert len(again.out.splitlines()) == len(planned[output].splitlines())
        assert reconciler("show", drift, "--output", output).code == 0
        assert reconciler("show", demo, "--output", output).code == 0
    assert reconciler("show", plan, "--output", "json").out == plan.read_text()
    assert reconciler("show", demo, "--output", "json").out == demo.read_text()


def test_a_plan_is_written_whole_where_it_was_asked_for(demo: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("an older one, and longer than nothing")
    done = reconciler("plan", SPEC, "--observation", demo, "--out", plan, "--output", "json")
    assert plan.read_text() == done.out
    assert list(tmp_path.glob(".plan*")) == []


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, _: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def check_markdown(text: str) -> None:
    text = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)  # what is escaped is text, and neither tag nor cell
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert len(re.findall(r"^```", text, re.MULTILINE)) % 2 == 0
    columns = None
    for line in text.splitlines():
        cells = line.count("|") if line.startswith("|") else None
        assert columns is None or cells is None or cells == columns, f"a row of {cells} cells among {columns}: {line}"
        columns = cells


@pytest.mark.parametrize("name", FROM_FILE)
def test_markdown_is_balanced(name: str, demo: Path, clean: Path) -> None:
    for observation in (demo, clean):
        done = reconciler(*words(name, observation, "--output", "markdown"))
        assert done.out.startswith(("## ", "# ", "**")), done.out[:80]
        check_markdown(done.out)
    check_markdown(reconciler("show", demo, "--output", "markdown").out)


HOSTILE = 'X</details>|`a`<img src=x onerror=1>@all [x](http://evil.example)\x1b[31m\u202e"\n# H'


def test_what_machines_say_breaks_no_report(demo: Path, tmp_path: Path) -> None:
    """A serial number is what a BMC says it is (pitfall M5)."""
    document = json.loads(demo.read_text())
    document["nodes"]["gpu-a001"]["hot"]["value"]["serial"] = HOSTILE
    document["nodes"]["gpu-a002"]["host"]["value"]["hostname"] = HOSTILE
    spoiled = tmp_path / "spoiled.json"
    spoiled.write_text(json.dumps(document))
    for name in ("drift", "plan"):
        human = reconciler(name, SPEC, "--observation", spoiled).out
        assert "\x1b" not in human
        assert "\u202e" not in human
        text = reconciler(name, SPEC, "--observation", spoiled, "--output", "markdown").out
        check_markdown(text)
        text = re.sub(r"^(`{3,})\w+\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)  # code is shown as it is
        assert not re.search(r"(?<!\\)<img", text)
        assert "http://evil" not in text
        assert "@all" not in text


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CI": "1"}], ids=str)
def test_off_a_terminal_everything_is_plain(demo: Path, env: dict[str, str]) -> None:
    for output in OUTPUTS:
        done = reconciler("plan", SPEC, "--observation", demo, "--output", output, env=env)
        assert "\x1b" not in done.out + done.err


# --- pipes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code"), [(["--detailed-exitcode"], 4), (["--detailed-exitcode", "--exclude", "gpu-a008"], 2)]
)
def test_a_reader_that_goes_away_changes_no_exit_code(demo: Path, more: list[str], code: int) -> None:
    """`reconciler plan | head -1` under `set -o pipefail`."""
    process = started("plan", SPEC, "--observation", demo, "--output", "json", *more)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    done = ended(process)
    assert done.code == code
    assert done.err == ""


@pytest.mark.parametrize("arguments", [["schema", "plan"], ["validate", str(SPEC)], ["--help"]], ids=lambda a: a[0])
def test_a_reader_that_goes_away_early_is_no_error(arguments: list[str]) -> None:
    process = started(*arguments)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    done = ended(process)
    assert (done.code, done.err) == (0, "")


def test_a_full_disk_under_stdout_is_reported(demo: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with full.open("w") as out:
        arguments = command("plan", SPEC, "--observation", demo)
        done = subprocess.run(arguments, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


# --- explain, hold, release, history ---------------------------------------------------------------------------------


def test_explain_shows_where_a_value_is_set_and_what_was_observed(demo: Path) -> None:
    whole = reconciler(*words("explain", demo))
    assert whole.code == 0
    for said in ("pools/train.yaml", "XID 79", "firmware.bmc"):
        assert said in whole.out
    one = reconciler("explain", "gpu-a002.bios.SriovGlobalEnable", SPEC, "--observation", demo)
    assert "hardware.yaml:" in one.out
    assert "Disabled" in one.out
    assert "firmware" not in one.out
    assert reconciler("explain", "gpu-a001.nonsense.path", SPEC, "--offline").code in (0, 64)


def test_a_held_node_is_left_alone_until_it_is_released(demo: Path) -> None:
    def blocked(node: str) -> tuple[str, bool]:
        plan = reconciler("plan", SPEC, "--observation", demo, "--output", "json").json["nodes"][node]
        return (plan["blocked"] or {"code": ""})["code"], plan["changes"]

    assert blocked("gpu-a002") == ("budget", True)
    done = reconciler("hold", "gpu-a002", "--reason", "waits for a cable", "--spec", SPEC)
    assert (done.code, done.err) == (0, "")
    assert "gpu-a002 is held: waits for a cable" in done.out
    assert blocked("gpu-a002") == ("held", False)
    assert "held by ops: waits for a cable" in reconciler("plan", SPEC, "--observation", demo).out
    assert reconciler("release", "gpu-a001", "--spec", SPEC).code == 64
    assert "held are gpu-a002" in reconciler("release", "gpu-a001", "--spec", SPEC).err
    assert reconciler("release", "gpu-a002", "--spec", SPEC).code == 0
    assert blocked("gpu-a002") == ("budget", True)
    events = reconciler("history", "gpu-a002", "--spec", SPEC, "--output", "json").json
    assert [entry["event"] for entry in events if entry["event"] in ("hold", "release")] == ["hold", "release"]


def test_a_pool_is_held_as_a_whole_and_for_a_time(demo: Path) -> None:
    done = reconciler("hold", "pool/infer", "--reason", "a demo", "--for", "2h", "--spec", SPEC)
    assert " until 20" in done.out
    plan = reconciler("plan", SPEC, "--observation", demo, "--output", "json").json
    held = {name for name, node in plan["nodes"].items() if node["blocked"] and node["blocked"]["code"] == "held"}
    assert held == {"gpu-b001", "gpu-b002", "gpu-b003", "gpu-b004"}
    assert reconciler("release", "pool/infer", "--spec", SPEC).code == 0


def test_a_hold_outlives_the_node_in_the_spec(demo: Path, spec: Path) -> None:
    """Invariant 10: taken out of the spec and put back, it is still held."""
    pool = spec / "pools" / "infer.yaml"
    text = pool.read_text()
    assert reconciler("hold", "gpu-b004", "--reason", "smoke", "--spec", spec).code == 0
    fewer = text.replace("gpu-b[001-004]", "gpu-b[001-003]").replace("[21-24]", "[21-23]")
    pool.write_text(fewer.replace("SN-B[001-004]", "SN-B[001-003]"))
    assert "gpu-b004" not in reconciler("plan", spec, "--observation", demo, "--output", "json").json["nodes"]
    pool.write_text(text)
    plan = reconciler("plan", spec, "--observation", demo, "--output", "json").json
    assert plan["nodes"]["gpu-b004"]["blocked"]["code"] == "held"


def test_a_hold_of_the_spec_outlives_its_line_and_is_released_by_command(
    demo: Path, spec: Path, tmp_path: Path
) -> None:
    """Invariant 10. An apply takes the hold along into the ledger; `drift`, which may look at any branch, does not."""

    def apply_begins() -> None:
        with closing(SqlLedger(tmp_path / "state" / "reconciler" / "demo.sqlite", fleet="demo")) as ledger:
            remember_holds(ledger, load_spec(spec, directory=str(spec)), datetime.now(UTC))

    def blocked() -> str:
        node = reconciler("plan", spec, "--observation", demo, "--output", "json").json["nodes"]["gpu-b004"]
        assert node["blocked"]["code"] == "held" or node["changes"]
        return str(node["blocked"]["detail"])

    pool = spec / "pools" / "infer.yaml"
    text, place = pool.read_text(), ("--spec", spec)
    pool.write_text(text.replace("spec:\n", "spec:\n  hold: {reason: a demo, owner: sales}\n", 1))
    line = f"{pool}:6:9"
    assert reconciler("validate", spec).code == 0
    assert f"held by sales: a demo (by {line})" in reconciler("plan", spec, "--observation", demo).out
    assert f"remove the hold from {line}" in reconciler("release", "pool/infer", *place).err
    listed = reconciler("hold", *place).out
    assert re.search(rf"pool/infer +sales +the next apply +by {line} +a demo", listed), listed
    assert reconciler("drift", spec, "--observation", demo).code == 4
    assert "the next apply" in reconciler("hold", *place).out
    apply_begins()
    assert re.search(r"pool/infer +sales +20\d\d-", reconciler("hold", *place).out)
    released = reconciler("release", "pool/infer", *place)
    assert released.code == 0
    assert f"is released, but {line} holds it again" in released.out
    assert "held by sales" in blocked()
    apply_begins()
    pool.write_text(text)
    assert f"once by {line}; `reconciler release pool/infer` lifts it" in blocked()
    assert "once by" in reconciler("hold", *place).out
    assert reconciler("release", "pool/infer", *place).out == "pool/infer is released\n"
    assert "held" not in blocked()
    assert reconciler("hold", *place).out == "nothing is held\n"


def test_a_hold_needs_a_reason_and_a_list_takes_none(spec: Path) -> None:
    assert reconciler("hold", "gpu-b004", "--spec", spec).code == 64
    assert reconciler("hold", "--reason", "x", "--spec", spec).code == 64


def test_a_node_that_left_the_spec_can_still_be_released_and_has_a_history(spec: Path) -> None:
    pool = spec / "pools" / "infer.yaml"
    assert reconciler("hold", "gpu-b004", "--reason", "smoke", "--spec", spec).code == 0
    text = pool.read_text().replace("gpu-b[001-004]", "gpu-b[001-003]").replace("[21-24]", "[21-23]")
    pool.write_text(text.replace("SN-B[001-004]", "SN-B[001-003]"))
    told = reconciler("history", "gpu-b004", "--spec", spec)
    assert told.code == 0
    assert "smoke" in told.out
    assert reconciler("release", "gpu-b004", "--spec", spec).code == 0


def test_history_before_anything_happened(demo: Path) -> None:
    done = reconciler("history", "gpu-a001", "--spec", SPEC)
    assert (done.code, done.out) == (0, "")
    assert "nothing is recorded yet" in done.err
    assert reconciler("history", "gpu-a001", "--spec", SPEC, "--output", "json").json == []


def test_drift_is_remembered_from_run_to_run(demo: Path) -> None:
    def seen() -> dict[str, tuple[str, str]]:
        items = reconciler("drift", SPEC, "--observation", demo, "--output", "json").json["items"]
        return {item["path"]: (item["first_seen"], item["last_seen"]) for item in items if item["node"] == "gpu-a002"}

    reconciler("ledger", "info", SPEC, "--create-ledger")
    first, second = seen(), seen()
    assert first.keys() == second.keys()
    for path, (since, last) in second.items():
        assert since == first[path][0]
        assert last >= first[path][1]
    story = reconciler("history", "gpu-a002", "--spec", SPEC, "--output", "json").json
    assert any(entry["event"] == "drift" for entry in story)
    check_markdown(reconciler("history", "gpu-a002", "--spec", SPEC, "--output", "markdown").out)


def test_whoever_only_reads_takes_no_lease(demo: Path, tmp_path: Path) -> None:
    """Conventions C2: each lease has a number of its own, and the first that anybody takes afterwards is number 1."""
    for name in ("drift", "plan"):
        assert reconciler(name, SPEC, "--observation", demo, "--create-ledger").code == 4
    with closing(SqlLedger(tmp_path / "state" / "reconciler" / "demo.sqlite")) as ledger:
        assert ledger.unfinished() == []
        assert ledger.acquire("demo", "test", 60.0, datetime.now(UTC)).token == 1


def test_one_ledger_per_fleet_in_the_state_directory(demo: Path, tmp_path: Path) -> None:
    reconciler("drift", SPEC, "--observation", demo, "--create-ledger")
    assert [path.name for path in (tmp_path / "state" / "reconciler").glob("*.sqlite")] == ["demo.sqlite"]
    elsewhere = tmp_path / "deep" / "er" / "ledger.db"
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / "state" / "reconciler" / "demo.sqlite").unlink()
    words = ("drift", SPEC, "--observation", demo, "--create-ledger")
    assert reconciler(*words, env={"RECONCILER_LEDGER": str(elsewhere)}).code == 4
    assert elsewhere.exists()
    assert not (tmp_path / "state" / "reconciler" / "demo.sqlite").exists()
