"""nccl-tests' text: both places are judged, the text must be whole, and versions old and new are read.

Rows and lines that are marked with an issue are re-typed from public threads of NVIDIA/nccl-tests and NVIDIA/nccl; what
versions print is held against their sources, v2.9.0 to v2.19.6.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.desired import GateTest
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.gate_arguments import COLLECTIVES, Value
from tests.gate.cases import GOOD, GPUS, NCCL_ROWS, SEEN, TABLE, gate_test, judge, nccl, wanted

CASE = GOOD[2]
FIRST, LAST = NCCL_ROWS
ALLTOALL = tuple((size, out, bad, into, "N/A") for size, out, bad, into, _ in NCCL_ROWS)
# nccl-tests issue 314: alltoall_perf -b 1M -g 8 on eight H20, of a version that does not name itself.
H20 = (
    "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 100 agg iters: 1 "
    "validation: 1 graph: 0\n#\n# Using devices\n"
    + "".join(
        f"#  Rank  {at} Group  0 Pid 173504 on  TENCENT64 device  {at} [{bus}] NVIDIA H20-3e\n"
        for at, bus in enumerate(("0x03", "0x16", "0x1c", "0x2e", "0x84", "0x9c", "0xb6", "0xbb"))
    )
    + TABLE.replace("  #wrong", " #wrong")
    + "".join(
        f"{size:12d}  {size // 32:12d}     float    none      -1    {out}      0    {into}    N/A\n"
        for size, out, into in (
            (2**20, "58.14   18.04   15.78", "57.87   18.12   15.85"),
            (2**21, "58.94   35.58   31.14", "58.10   36.10   31.58"),
            (2**22, "59.35   70.67   61.84", "59.23   70.81   61.96"),
        )
    )
    + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 36.3583 \n#\n\n"
)  # fmt: skip


def run(text: str, *, status: int = 0, versions: tuple[str, ...] = (), **args: Value) -> TestResult:
    return judge(
        replace(CASE, test=replace(gate_test("nccl-tests", **args), versions=versions)), text, exit_status=status
    )


def test_no_environment_is_kept_as_evidence() -> None:
    """Acceptance rule 9: `-J` writes the whole environment, with its secrets; what we ask for has none of it."""
    for collective in COLLECTIVES:
        test = gate_test("nccl-tests", collective=collective)
        commands = TOOLS["nccl-tests"].commands(test, wanted(), None)  # type: ignore[arg-type] # not read
        assert isinstance(commands, tuple)
        [argv] = commands
        assert argv[4].endswith('exec env NCCL_DEBUG=VERSION "$@"'), "INFO prints variables, too"
        assert "grep -E '^[ \t]*(NCCL|RCCL)_'" in argv[4], "no other variables"
        assert not {"-J", "--output_file", "-x"} & set(argv)
        assert not [word for word in argv[6:] if "=" in word or word.startswith("-J")]


def test_the_slower_place_counts() -> None:
    slow = nccl((FIRST, (LAST[0], "482.00", "0", "231.17", "0")))
    assert run(slow).metrics == {"busbw_peak": 231.17}
    assert run(nccl((FIRST, (LAST[0], "231.17", "0", "481.52", "0")))).metrics == {"busbw_peak": 231.17}


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("place", [2, 4])
def test_a_wrong_value_at_any_size_and_place_fails(at: int, place: int) -> None:
    rows = [list(row) for row in NCCL_ROWS]
    rows[at][place] = "137"
    text = nccl([tuple(row) for row in rows])  # type: ignore[misc] # of five cells
    assert run(text).verdict is Verdict.FAIL
    assert run(text.replace("1 FAILED", "0 OK")).verdict is Verdict.FAIL, "though the footer says that all is well"
    assert run(text.replace(" 137", " N/A").replace("1 FAILED", "0 OK")).verdict is Verdict.UNJUDGED


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_is_not_checked_in_place(collective: str) -> None:
    """alltoall and sendrecv have no result in place: their sources switch the check off there, whatever -c says."""
    text = nccl(ALLTOALL, collective=collective, redop="none")
    undefined = collective in ("alltoall", "sendrecv")
    assert (run(text, collective=collective).verdict is Verdict.PASS) is undefined
    unchecked = nccl([(*row[:2], "N/A", *row[3:]) for row in ALLTOALL], collective=collective)
    assert run(unchecked, collective=collective).verdict is Verdict.UNJUDGED


def test_a_real_alltoall() -> None:

    def alltoall(text: str) -> TestResult:
        return run(text, collective="alltoall", minBytes="1M", maxBytes="4M")

    assert alltoall(H20).reasons == ("the tool does not say its version",)
    named = H20.replace("#\n#      ", "NCCL version 2.26.2+cuda12.2\n#\n#      ", 1)
    result = alltoall(named)
    assert (result.verdict, result.tool_version) == (Verdict.PASS, "nccl-2.26.2"), result.reasons
    assert result.metrics == {"busbw_peak": 61.84}
    blank = named.replace("    none ", "         ")  # 2.13.0 to 2.13.3 print no redop where nothing is reduced
    assert alltoall(blank).verdict is Verdict.PASS
    for cut in range(len(named.rstrip("#\n"))):
        assert alltoall(named[:cut]).verdict is not Verdict.PASS, named[:cut][-40:]


def test_sizes_are_rounded_down_to_whole_ranks() -> None:
    """all_gather_perf -g 6 -b 8G: each rank gets whole 16 bytes, so 8 bytes of 8 GiB remain (all_gather.cu)."""
    size = 8 * 2**30
    odd = nccl(((size, "300.00", "0", "301.00", "0"),), gpus=6, collective="all_gather", redop="none")
    odd = odd.replace(f"{size:12d}  ", f"{size // 96 * 96:12d}  ")
    test = gate_test("nccl-tests", collective="all_gather", minBytes="8G", maxBytes="8G")
    assert judge(replace(CASE, test=test), odd, gpus=6).verdict is Verdict.PASS
    short = odd.replace(f"{size // 96 * 96:12d}  ", f"{size // 96 * 96 - 96:12d}  ")
    assert judge(replace(CASE, test=test), short, gpus=6).verdict is Verdict.UNJUDGED


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NCCL version 2.21.5+cuda12.4", "nccl-2.21.5"),
        ("NCCL version 2.16.5+cuda11.8", "nccl-2.16.5"),  # nccl-tests issue 131
        ("node:12225:12225 [0] NCCL INFO NCCL version 2.25.1+cuda12.4", "nccl-2.25.1"),  # nccl-tests issue 291
    ],
)
def test_an_older_one_is_known_by_the_library(line: str, version: str) -> None:
    """nccl-tests names its version since 2.17.4; NCCL prints its own where NCCL_DEBUG is VERSION."""
    silent = nccl(own_version=False)
    assert run(silent).verdict is Verdict.UNJUDGED
    named = silent.replace("#\n#     ", f"{line}\n#\n#     ", 1)
    result = run(named)
    assert (result.verdict, result.tool_version) == (Verdict.PASS, version), result.reasons
    assert run(named, versions=("2.17",)).verdict is Verdict.UNJUDGED, "the policy names versions of nccl-tests"
    assert run(named, versions=(version.rpartition(".")[0],)).verdict is Verdict.PASS
    commands = TOOLS["nccl-tests"].commands(CASE.test, wanted(), None)  # type: ignore[arg-type] # not read
    assert commands[0][5:7] == ("sh", "all_reduce_perf")


def test_its_own_version_comes_first() -> None:
    assert run(nccl(library="2.26.2+cuda12.8")).tool_version == "2.17.6"
    assert run(nccl(library="2.26.2+cuda12.8"), versions=("2.18",)).verdict is Verdict.UNJUDGED


def test_columns_of_another_version_are_not_read() -> None:
    """Before 2.13 the column is `error`, the largest rounding error: 2e-07 is healthy, and 0 is no proof."""
    older = nccl(own_version=False, library="2.9.6+cuda11.2").replace(" #wrong", "  error")
    result = run(older)
    assert result.verdict is Verdict.UNJUDGED
    assert any("2.13 or later" in reason for reason in result.reasons)


@pytest.mark.parametrize("own_version", [True, False])
def test_a_text_that_ends_early_is_no_pass(own_version: bool) -> None:
    text = nccl(own_version=own_version, library="2.21.5+cuda12.4")
    for cut in range(len(text.rstrip("#\n"))):
        assert run(text[:cut]).verdict is not Verdict.PASS, text[:cut][-60:]


EVIDENCE = {  # of each kind of line, which cells are evidence; the others may change without harm
    "# nThread": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
    "#  Rank": {0, 1, 2, -7, -6, -5},
    "# Collective": {0, 1, 2, 3, 4},
    "# Out": {0, 1, 2, 3, 4, 5, 6},
    "# Avg": {0, 1, 2, 3, 4, 5},
    "#       size": set(range(14)),
    " ": {0, 5, 6, 7, 8, 9, 10, 11, 12},  # a row; count, type, redop and root follow from what was asked for
}
NO_EVIDENCE = ("# nccl-tests version", "# Using devices", "NCCL version", "#  ", "#\n", "\n")


def _kind(line: str) -> str | None:
    return next((kind for kind in EVIDENCE if line.startswith(kind) and not line.startswith("\n")), None)


def test_not_evidence_is_not_pass_for_each_line() -> None:
    """Invariant 18: drop or repeat any line; what passes all the same is on the list of lines that are no evidence."""
    text = nccl(library="2.26.2+cuda12.8")
    assert run(text).verdict is Verdict.PASS
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        changed = (lines[:at] + lines[at + 1 :], lines[: at + 1] + lines[at:])
        for found in changed:
            if _kind(line) is not None or not line.startswith(NO_EVIDENCE):
                assert run("".join(found)).verdict is not Verdict.PASS, line


@pytest.mark.parametrize(
    "junk", ["x", "N/A", "nan", "inf", "-1", "9" * 400, "\ud800", "\u0661", "1_0"], ids=lambda junk: ascii(junk[:8])
)
def test_not_evidence_is_not_pass_for_each_cell(junk: str) -> None:
    """Invariant 18: put something else in any cell that is evidence."""
    lines = nccl(library="2.26.2+cuda12.8").splitlines()
    for at, line in enumerate(lines):
        kind = _kind(line)
        cells = line.split()
        for index in EVIDENCE[kind] if kind is not None else ():
            if -len(cells) <= index < len(cells):
                garbled = [*cells]
                garbled[index] = junk
                text = "\n".join(
                    [*lines[:at], " ".join(garbled) if kind != " " else "  ".join(["", *garbled]), *lines[at + 1 :]]
                )
                assert run(text + "\n").verdict is not Verdict.PASS, " ".join(garbled)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (f"nGpus {GPUS}", "nGpus 4", "other settings"),
        ("step: 2(factor)", "step: 1048576(bytes)", "other settings"),
        ("validation: 1", "validation: 0", "validation is off"),
        (f"maxBytes {16 * 2**30}", "maxBytes 9000000000", "other settings"),
        ("concluded: all_reduce", "concluded: all_gather", "all_reduce_perf was started"),
        ("480.81 ", "480.81 FAILED", "NCCL_TESTS_MIN_BW"),
        ("480.81 ", "12.5 ", "the rows give 480.81"),
        (" 480.10 ", " 980.10 ", "the rows give"),
        ("perf\n#\n\n", "perf\n#\n# error: Call to ibv_modify_qp failed with 110\n", "ibv_modify_qp"),
        ("0 OK", "0 FAILED", "0 FAILED"),
        (f"{8 * 2**30:12d} ", f"{2**30:12d} ", "sizes were run"),
        ("[0000:7c:00]", "0000:7c:00", "7 ranks"),
        ("Rank  7", "Rank  6", "ranks are listed"),
        ("device  7", "device  6", "ran on 7 devices"),
    ],
)
def test_what_is_wrong_is_said(before: str, after: str, reason: str) -> None:
    text = nccl()
    assert before in text
    result = run(text.replace(before, after))
    assert result.verdict is not Verdict.PASS
    assert any(reason in said for said in result.reasons), result.reasons


def test_the_last_error_stands_alone_in_older_versions() -> None:
    """2.13 to 2.16.6 print ncclGetLastError() as it is, after the footer."""
    text = nccl(own_version=False, library="2.21.5+cuda12.4")
    assert run(text).verdict is Verdict.PASS
    assert run(text + "Call to ibv_modify_qp failed with 110 Connection timed out\n").verdict is Verdict.ERROR


def test_one_rank_is_no_collective() -> None:
    alone = nccl([(size, "0.00", "0", "0.00", "0") for size, *_ in NCCL_ROWS], gpus=1)
    assert judge(CASE, alone, gpus=1).verdict is not Verdict.PASS  # it prints busbw 0 and OK


def test_one_gpu_of_one_node_has_nothing_to_send_to() -> None:
    """Of itself to itself, sendrecv on an H200 gave 1,915 GB/s and OK: memory, and no link."""
    for collective in ("all_reduce", "sendrecv"):
        test = gate_test("nccl-tests", collective=collective)
        refused = TOOLS["nccl-tests"].commands(test, wanted(gpus=1), SEEN)
        assert refused == "one GPU has no other to send to: give the test nodes, or leave it out"


def test_the_version_that_a_container_names_is_no_setting() -> None:
    """NVIDIA's CUDA images set NCCL_VERSION, which NCCL does not read."""
    assert run("# setting 0: NCCL_VERSION=2.28.3-1\n" + nccl()).tool_version == run(nccl()).tool_version
    assert run("# setting 0: NCCL_ALGO=Ring\n" + nccl()).tool_version != run(nccl()).tool_version


@pytest.mark.parametrize("sizes", [("16G", "8G"), ("0", "8G"), ("x", "8G")])
def test_sizes_that_would_run_nothing_or_for_ever_are_refused(sizes: tuple[str, str]) -> None:
    test: GateTest = gate_test("nccl-tests", minBytes=sizes[0], maxBytes=sizes[1])
    assert isinstance(TOOLS["nccl-tests"].commands(test, wanted(), None), str)  # type: ignore[arg-type] # not read


@pytest.mark.parametrize(
    ("args", "sizes"),
    [({}, ("8G", "16G")), ({"maxBytes": "16M"}, ("16M", "16M")), ({"minBytes": "32G"}, ("32G", "32G"))],
    ids=str,
)
def test_a_size_alone_bounds_the_other(args: dict[str, str], sizes: tuple[str, str]) -> None:
    found = TOOLS["nccl-tests"].commands(gate_test("nccl-tests", **args), wanted(), None)  # type: ignore[arg-type] # not read
    assert isinstance(found, tuple)
    command = found[0]
    assert (command[command.index("-b") + 1], command[command.index("-e") + 1]) == sizes


def over_nodes(nodes: int = 2) -> str:
    """What the first of a process for each GPU prints: nGpus 1, and the ranks of every node."""
    text = nccl(gpus=8 * nodes)
    ranks = "".join(
        f"#  Rank {at:2d} Group  0 Pid {4000 + at} on gpu-a00{at // 8} device {at % 8:2d} [0000:{at % 8}c:00] H100\n"
        for at in range(8 * nodes)
    )
    begin, _, rest = text.partition("# Using devices\n")
    table = rest[rest.index("#\n#    ") :]
    return begin.replace(f"nGpus {8 * nodes} ", "nGpus 1 ") + "# Using devices\n" + ranks + table


def test_several_nodes_pass_when_each_is_there_with_all_its_gpus() -> None:
    text = over_nodes()
    assert run(text, partners=2).verdict is Verdict.PASS, run(text, partners=2).reasons
    assert run(text, group=2).metrics == {"busbw_peak": 481.52}
    assert run(over_nodes(3), group=3).verdict is Verdict.PASS
    assert run(text).verdict is Verdict.UNJUDGED, "one node was asked for"
    assert run(text, group=3).verdict is Verdict.UNJUDGED, "a node is not there"
    assert run(nccl(), partners=2).verdict is Verdict.UNJUDGED


def conf(*settings: str, rails: str = "") -> str:
    """Return what the version ends with of a test over three nodes, whose first processes print these settings."""
    version = run("\n".join((*settings, over_nodes(3))), group=3, rails=rails).tool_version
    return version.partition("-conf.")[2]


def test_what_each_of_several_nodes_sets_for_nccl_is_part_of_what_they_measured() -> None:
    """One node of a group with another algorithm slows down all of it."""
    rings = [f"# setting {rank}: NCCL_ALGO=Ring" for rank in (0, 8, 16)]
    alone = run(f"{rings[0]}\n{nccl()}").tool_version.partition("-conf.")[2]
    assert conf() == ""
    assert conf(*rings) == alone != "", "where all set the same, it is that of one"
    assert len({alone, conf(*rings[:2]), conf(rings[0]), conf(*rings[:2], "# setting 16: NCCL_ALGO=Tree")}) == 4
    assert conf(*rings[:2]) == conf(*rings[1:]), "whichever nodes they are"


def test_what_a_test_sets_for_nccl_itself_makes_no_difference() -> None:
    ours = ("NCCL_SOCKET_IFNAME==ib0", "NCCL_IB_HCA==mlx5_0", "NCCL_NET=IB", "NCCL_DEBUG=VERSION")
    told = [f"# setting {rank}: {setting}" for rank in (0, 8, 16) for setting in ours]
    assert conf(*told, rails="mlx5_0") == ""
    assert conf(*told) != "", "rails that it does not name are the nodes' own"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("on gpu-a001", "on gpu-a000"),
        ("on gpu-a001 device  7", "on gpu-a002 device  7"),
        ("on gpu-a001 device  7", "on gpu-a001 device  6"),
        ("nGpus 1 ", "nGpus 8 "),
        ("#  Rank 15 ", "#  Rank 14 "),
    ],
    ids=["one node twice", "a third node", "a GPU twice", "other processes", "a rank twice"],
)
def test_several_nodes_that_are_not_those_of_the_test_are_no_pass(before: str, after: str) -> None:
    text = over_nodes()
    assert before in text
    assert run(text.replace(before, after), partners=2).verdict is Verdict.UNJUDGED


def test_no_part_of_what_several_nodes_print_passes() -> None:
    text = over_nodes()
    for cut in range(0, len(text.rstrip("#\n")), 7):
        assert run(text[:cut], partners=2).verdict is not Verdict.PASS, text[:cut][-40:]


def test_what_public_runs_over_nodes_printed_is_never_a_pass_that_is_none(samples: Path) -> None:
    """A fragment of 64 H100, one of a rack of GB300, and what mpirun says that refuses a mapping."""
    folder = samples / "nccl-tests"
    for name in ("coreweave_h100_64gpu_ok.log", "azure_gb300_mnnvl_ok_fragment.log", "azure_chm_mpirun_rejects.log"):
        text = (folder / name).read_text()
        for asked in ({"partners": 2}, {"group": 8}):
            assert judge(replace(CASE, test=gate_test("nccl-tests", **asked)), text).verdict in (
                Verdict.UNJUDGED,
                Verdict.ERROR,
            ), name
    refused = (folder / "azure_chm_mpirun_rejects.log").read_text()
    result = judge(replace(CASE, test=gate_test("nccl-tests", partners=2)), refused, exit_status=1)
    assert result.verdict is Verdict.ERROR
    assert result.reasons[0].startswith("it did not start: ")


def test_rows_of_a_public_run_over_64_gpus_pass_under_a_whole_head(samples: Path) -> None:
    """The public log lacks its list of ranks, and its sizes begin at 4 bytes: the rows that it has are kept."""
    rows = [
        line for line in (samples / "nccl-tests" / "coreweave_h100_64gpu_ok.log").read_text().splitlines()
        if line.lstrip()[:1].isdigit()
    ]  # fmt: skip
    whole = over_nodes(8).splitlines()
    at = [number for number, line in enumerate(whole) if line.lstrip()[:1].isdigit()]
    text = "\n".join([*whole[: at[0]], *rows, *whole[at[-1] + 1 :], ""])
    text = text.replace("minBytes 8589934592 maxBytes 17179869184", "minBytes 536870912 maxBytes 8589934592")
    text = re.sub(r"(Avg bus bandwidth    : )\S+", r"\g<1>373.187", text)
    result = run(text, group=8, minBytes="512M", maxBytes="8G")
    assert result.verdict is Verdict.PASS, result.reasons
    assert result.metrics == {"busbw_peak": 385.56}
