"""The scripts that tools send to nodes, run by a real shell, with stand-ins that print what real programs printed.

The stand-ins print decimal commas unless LC_ALL is C, and start as the real programs are started. What is tested is the
script around them: its output, its clean-up, and what becomes of it where a program goes wrong.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pytest

from reconciler.gate.lock import FILE, locked
from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.fio_verify import FILE as VERIFIED
from reconciler.gate.tools.link_counters import COUNTERS
from reconciler.gate.tools.pcie import WARM_UP
from reconciler.gate.tools.shell import SCRATCH
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.gate_arguments import Value
from tests.gate.cases import SEEN, nccl, wanted
from tests.gate.mutations import FOLDER
from tests.gate.test_judges_never_raise import check

pytestmark = pytest.mark.tool  # sh, and flock and timeout of util-linux and coreutils

BASE = (
    "cat", "chmod", "cut", "env", "flock", "grep", "head", "kill", "mkdir", "mktemp", "mv", "rm", "sed", "setsid", "sh",
    "sleep", "tail", "timeout", "tr", "true",
)  # fmt: skip
PORTS = "/sys/class/infiniband"
LOAD = "true; sleep 600 & sleep 600; sleep 600"
_SHOW = '[ "$LC_ALL" = C ] || comma="s/\\([0-9]\\)[.]\\([0-9]\\)/\\1,\\2/g"; show() { sed "$comma" "$data/$1"; }'


class Node:
    """A folder that is a node: its programs, its scratch, its files. Nothing else is in the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, f"TEST_NODE={uuid.uuid4().hex}"
        for name in ("bin", "base", "tmp", "data", "opt"):
            (folder / name).mkdir()
        for name in BASE:
            program = shutil.which(name)
            assert program is not None, name
            (folder / "base" / name).symlink_to(program)

    def data(self, name: str, text: str) -> None:
        (self.folder / "data" / name).write_text(text)

    def program(self, name: str, script: str, folder: str = "bin") -> None:
        file = self.folder / folder / name
        file.write_text(f"#!/bin/sh\ndata={self.folder / 'data'}\n{_SHOW}\n{script}\n")
        file.chmod(0o755)

    def words(self, argv: Sequence[str]) -> list[str]:
        places = {FILE: f"{self.folder}/lock", PORTS: f"{self.folder}/ports", WARM_UP: "sleep 1"}
        return [reduce(lambda text, old: text.replace(old, places[old]), places, word) for word in argv]

    def run(self, argv: Sequence[str], limit_s: int, before: Sequence[str] = ()) -> CommandResult:
        mark, _, value = self.mark.partition("=")
        environment = {
            "PATH": f"{self.folder}/bin:{self.folder}/base", "TMPDIR": f"{self.folder}/tmp", "LC_ALL": "de_DE.UTF-8",
            mark: value,
        }  # fmt: skip
        words = [*before, "timeout", "-k", "5", str(limit_s), *self.words(locked(argv))]
        done = subprocess.run(
            words, capture_output=True, env=environment, timeout=60, start_new_session=True, check=False
        )
        out = done.stdout.decode().replace(f"{self.folder}/ports", PORTS)
        timed_out = done.returncode == 124
        return CommandResult(-1 if timed_out else done.returncode, out, done.stderr.decode(), timed_out)

    @property
    def left(self) -> list[str]:
        """Return the processes and the files that runs have left."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and self.mark.encode() in _environment(process):
                found.append((process / "cmdline").read_text())
        return found + [file.name for file in (self.folder / "tmp").iterdir() if file.name.startswith(SCRATCH)]


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended, or is another user's
        return []


@dataclass(frozen=True)
class Case:
    """`programs`: the stand-ins, by name, of which the first is the tool. `needs_disk`: without it, no pass."""

    args: Mapping[str, Value]
    programs: Mapping[str, str]
    recordings: tuple[str, ...]
    prepare: Callable[[Node], None] = lambda _: None
    inventory: Mapping[str, int] | None = None
    needs_disk: bool = False
    in_folder: str = "bin"


def _stress_ng(node: Node) -> None:
    log, _, document = (FOLDER / "stress-ng.txt").read_text().partition("\n---\n")
    node.data("log", log + "\n")
    node.data("yaml", "---\n" + document)


def _dcgmproftester(node: Node) -> None:
    _load(node, "dcgmproftester.txt")


def _gpu_burn(node: Node) -> None:
    _load(node, "gpu-burn.txt")


def _load(node: Node, recording: str) -> None:
    burn, _, samples = (FOLDER / recording).read_text().partition("--- samples\n")
    node.data("burn", burn)
    node.data("samples", samples.partition("--- end")[0])


def _ports(node: Node) -> None:
    for port in ("mlx5_0", "mlx5_1"):
        folder = node.folder / "ports" / port / "ports" / "1" / "counters"
        folder.mkdir(parents=True)
        for name in COUNTERS:
            (folder / name).write_text("7\n")


def _cleared() -> str:
    return (FOLDER / "mlxlink.txt").read_text().replace(": 25074.8", ": 0.0")


CASES: Mapping[str, Case] = {
    "stress-ng": Case(
        {"stressors": "cpu,vm", "seconds": 1}, {"stress-ng": "show log >&2; show yaml >out.yaml"}, (), _stress_ng,
        needs_disk=True,
    ),
    "hpcc": Case({"order": 300}, {"hpcc": "[ -s hpccinf.txt ] && show hpcc.txt >hpccoutf.txt"}, ("hpcc.txt",),
                 needs_disk=True),
    "fio-verify": Case(
        {"mebibytes": 4},
        {"fio": 'for w in "$@"; do case $w in --filename=*) echo x >"${w#*=}";; esac; done; show fio-verify.txt'},
        ("fio-verify.txt",),
    ),
    "iperf3": Case(
        {"seconds": 1, "streams": 2},
        {"iperf3": '[ "$1" != -s ] || { echo listening; exec sleep 600; }; show iperf3.txt'},
        ("iperf3.txt",),
    ),
    "perftest": Case(
        {"rails": "mlx5_0"},
        {
            "ib_write_bw": 'for w in "$@"; do last=$w; done; case $last in '
            "--version) show perftest-version.txt; exit 1;; localhost) show perftest.txt;; *) sleep 2;; esac"
        },
        ("perftest.txt", "perftest-version.txt"),
    ),
    "pcie": Case(
        {"load": LOAD},
        {"lspci": 'if [ "$1" = --version ]; then cat "$data/lspci-version.txt"; else show lspci.txt; fi'},
        ("lspci.txt", "lspci-version.txt"),
    ),
    "gpu-burn": Case(
        {"seconds": 10},
        {"gpu_burn": "sleep 1; show burn", "nvidia-smi": "show samples; exec sleep 600"},
        (), _gpu_burn, {"gpus": 2}, needs_disk=True, in_folder="opt",
    ),
    "dcgmproftester": Case(
        {"seconds": 10},
        {"dcgmproftester12": "sleep 1; show burn", "nvidia-smi": "show samples; exec sleep 600"},
        (), _dcgmproftester, {"gpus": 1}, needs_disk=True,
    ),
    "link-counters": Case({"seconds": 1, "load": LOAD}, {}, (), _ports, {"rdma_ports": 2}),
    "mlxlink": Case(
        {"rails": "mlx5_0, mlx5_1", "seconds": 1, "load": LOAD},
        {"mlxlink": 'for w in "$@"; do last=$w; done; [ "$last" = --pc ] || show mlxlink.txt'},
        (), lambda node: node.data("mlxlink.txt", _cleared()),
    ),
    "nccl-tests": Case({}, {"all_reduce_perf": "show nccl.txt"}, (), lambda node: node.data("nccl.txt", nccl())),
    "rccl-tests": Case(
        {"minBytes": "1G", "maxBytes": "8G"}, {"all_reduce_perf": "show rccl-tests.txt"}, ("rccl-tests.txt",)
    ),
    "command": Case({"run": "train", "metrics": "mfu"}, {"train": "show train.txt"}, (),
                    lambda node: node.data("train.txt", "mfu 0.42\n")),
}  # fmt: skip
EACH = pytest.mark.parametrize("tool", CASES)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def prepared(node: Node, tool: str) -> GateTest:
    case = CASES[tool]
    for name in case.recordings:
        node.data(name, (FOLDER / name).read_text())
    case.prepare(node)
    for name, script in case.programs.items():
        node.program(name, script, case.in_folder if name == next(iter(case.programs)) else "bin")
    folder = {"directory": f"{node.folder}/opt"} if tool in ("gpu-burn", "fio-verify") else {}
    return GateTest(tool, tool, {**case.args, **folder}, (), 60.0)


def run(node: Node, test: GateTest, *, limit_s: int = 30, before: Sequence[str] = ()) -> TestResult:
    desired = wanted(**(CASES[test.tool].inventory or {}))
    commands = TOOLS[test.tool].commands(test, desired, SEEN)
    assert isinstance(commands, tuple), commands
    outputs = [node.run(argv, limit_s, before) for argv in commands]
    return check(TOOLS[test.tool].judge(test, desired, SEEN, outputs))


def spoil(node: Node, tool: str, script: str) -> None:
    """Put another program in the place of the tool, or none."""
    case = CASES[tool]
    name = next(iter(case.programs))
    (node.folder / case.in_folder / name).unlink()
    if script:
        node.program(name, script, case.in_folder)


def test_every_script_is_tried() -> None:
    """A tool that needs no script sends one program with its words, which test_robust judges."""
    scripted = set()
    for tool in TOOLS.keys() - {"extension"}:  # whose script is of a package
        args: dict[str, Value] = {"rails": "mlx5_0", "run": "train", "metrics": "mfu", "directory": "/opt"}
        args |= {"seconds": 1} if tool == "mlxlink" else {}  # without an interval it only reads
        commands = TOOLS[tool].commands(GateTest(tool, tool, args, (), 60.0), wanted(), SEEN)
        assert isinstance(commands, tuple)
        if any(argv[2:4] == ("sh", "-c") for argv in commands):
            scripted.add(tool)
    assert scripted == set(CASES)


@EACH
def test_a_script_prints_what_its_judge_reads_and_leaves_nothing(node: Node, tool: str) -> None:
    """Whatever language the node speaks."""
    result = run(node, prepared(node, tool))
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert result.metrics
    assert node.left == []
    assert not (node.folder / "opt" / VERIFIED).exists()


WITH_PROGRAM = pytest.mark.parametrize("tool", [tool for tool in CASES if CASES[tool].programs])


@WITH_PROGRAM
def test_a_program_that_is_missing_is_an_error(node: Node, tool: str) -> None:
    test = prepared(node, tool)
    spoil(node, tool, "")
    result = run(node, test)
    assert result.verdict in (Verdict.ERROR, Verdict.UNJUDGED), result
    assert node.left == []


@WITH_PROGRAM
@pytest.mark.parametrize("script", ["kill -9 $$", "echo half; kill -9 $$", "echo 'GPU is lost' >&2; exit 15"])
def test_a_program_that_is_killed_or_loses_its_gpu_is_an_error(node: Node, tool: str, script: str) -> None:
    test = prepared(node, tool)
    spoil(node, tool, script)
    result = run(node, test)
    assert result.verdict in (Verdict.ERROR, Verdict.UNJUDGED), result
    assert node.left == []


@WITH_PROGRAM
def test_a_program_that_hangs_is_killed_with_all_that_it_started(node: Node, tool: str) -> None:
    test = prepared(node, tool)
    spoil(node, tool, "trap '' TERM; setsid sleep 600 & sleep 600 & sleep 600; sleep 600")
    result = run(node, test, limit_s=2)
    assert (result.verdict, result.reasons[0]) == (Verdict.ERROR, "killed at its timeout")
    assert node.left == []


@EACH
def test_a_disk_that_is_full_is_no_pass_of_what_is_not_there(node: Node, tool: str) -> None:
    """Nothing can be written to a file. What needs none still passes, with the figures that it has otherwise."""
    test = prepared(node, tool)
    full = ("sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh")
    result = run(node, test, before=full)
    if CASES[tool].needs_disk:
        assert result.verdict in (Verdict.ERROR, Verdict.UNJUDGED), result
    elif result.verdict is Verdict.PASS:
        assert result.metrics == run(node, test).metrics
    assert node.left == []


def test_settings_of_nccl_on_the_node_are_part_of_what_was_measured(node: Node) -> None:
    """By the environment or by a file: peers have the same, and a node that has others is none of theirs."""
    test = prepared(node, "nccl-tests")
    plain = run(node, test)
    assert plain.tool_version == "2.17.6"
    ring = run(node, test, before=("env", "NCCL_ALGO=Ring"))
    (node.folder / "nccl.conf").write_text("# of the site\nNCCL_ALGO=Tree\n  NCCL_DEBUG=WARN\n")
    tree = run(node, test, before=("env", f"NCCL_CONF_FILE={node.folder}/nccl.conf"))
    versions = {result.tool_version for result in (ring, tree)}
    assert len(versions) == 2
    assert all(re.fullmatch(r"2\.17\.6-conf\.[0-9a-f]{8}", version) for version in versions)
    assert {result.verdict for result in (ring, tree)} == {Verdict.PASS}
    assert ring.metrics == tree.metrics == plain.metrics
    assert "# setting 0: NCCL_ALGO=Tree" in tree.evidence
    quiet = run(node, test, before=("env", "NCCL_DEBUG=WARN"))
    assert quiet.tool_version == plain.tool_version, "what is printed is no matter of speed"


def test_how_the_processors_are_divided_is_part_of_what_was_measured(node: Node) -> None:
    found = run(node, prepared(node, "hpcc")).tool_version
    divided = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    assert found == (f"1.5.0-numa{divided}" if divided else "1.5.0")


def test_the_samples_of_gpu_burn_are_cut_off_where_the_disk_is_full(node: Node) -> None:
    """The rest of the script runs on, so that its output has a beginning and an end, and half a number between them."""
    test = prepared(node, "gpu-burn")
    node.program("nvidia-smi", "show samples | head -c 70; exec sleep 600")
    result = run(node, test)
    assert result.verdict in (Verdict.ERROR, Verdict.UNJUDGED), result
