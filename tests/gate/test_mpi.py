"""What one node wrote is what another runs: only the known values of it are taken, in their known form."""

from __future__ import annotations

import shlex

import pytest

from reconciler.gate.tools.mpi import Launch, daemon_command, first_command, read_told, why_not_started

LAUNCH = Launch(("all_reduce_perf", "-g", "1"), {"NCCL_DEBUG": "VERSION"}, 3, 8, "ib0", name="abc")
# As mpirun of Open MPI 4.1.4 (Debian 12) hands it to its plm_rsh_agent, for the second of two daemons.
TOLD = (
    'abc-{at}  orted -mca orte_leave_session_attached "1" -mca ess "env" -mca ess_base_jobid "169607168" -mca '
    'ess_base_vpid {at} -mca ess_base_num_procs "3" -mca orte_node_regex "vm,abc-[1:1-2]@0(3)" -mca orte_hnp_uri '
    '"169607168.0;tcp://10.0.0.1,10.1.0.1:34511" --mca plm_rsh_no_tree_spawn "1" --mca oob_tcp_if_include "ib0" -mca '
    'plm "rsh" -mca pmix "^s1,s2,cray,isolated" \n'
)
BOTH = TOLD.format(at=2) + TOLD.format(at=1)
# As mpirun of Open MPI 5.0.11 (from PyPI, in /opt/ompi) hands it to its plm_ssh_agent.
OF_5 = (
    "abc-{at} PRTE_PREFIX=/opt/ompi;export PRTE_PREFIX;PMIX_PREFIX=/opt/ompi;export PMIX_PREFIX;LD_LIBRARY_PATH="
    "/opt/ompi/lib:$LD_LIBRARY_PATH;export LD_LIBRARY_PATH;/opt/ompi/bin/prted --leave-session-attached --prtemca ess "
    '"env" --prtemca ess_base_nspace "prterun-vm-12769@0" --prtemca ess_base_vpid {at} --prtemca ess_base_num_procs '
    '"3" --prtemca prte_hnp_uri "prterun-vm-12769@0.0;tcp://192.0.2.2:33905:64,24;tcp6://[fd00::2]:59865:64,24" '
    '--prtemca PREFIXES "errmgr,ess,filem,grpcomm,iof,odls,oob,plm,prtebacktrace,prtedl,prteinstalldirs,prtereachable,'
    'ras,rmaps,rtc,schizo,state,hwloc,if,reachable" --prtemca plm "ssh" --prtemca plm_ssh_agent "sh /tmp/w/agent.sh" '
    '--prtemca plm_ssh_no_tree_spawn "1" --prtemca prte_if_include "eth0" --prtemca pmix_session_server "1" '
    '--prtemca plm "ssh"\n'
)
BOTH_OF_5 = OF_5.format(at=2) + OF_5.format(at=1)


def test_each_daemon_gets_its_own_number_and_the_address_of_mpirun() -> None:
    told = read_told(BOTH, LAUNCH)
    assert isinstance(told, dict)
    assert sorted(told) == [1, 2]
    words = daemon_command(LAUNCH, told[2])
    settings = dict(zip(words[words.index("orted") + 2 :: 3], words[words.index("orted") + 3 :: 3], strict=True))
    assert settings["ess_base_vpid"] == "2"
    assert settings["orte_hnp_uri"] == "169607168.0;tcp://10.0.0.1,10.1.0.1:34511"
    assert settings["oob_tcp_if_include"] == "ib0"
    assert "setpriv --reuid" in shlex.join(words)


def test_a_daemon_of_open_mpi_5_gets_the_same_by_its_own_names() -> None:
    told = read_told(BOTH_OF_5, LAUNCH)
    assert isinstance(told, dict)
    words = daemon_command(LAUNCH, told[2])
    at = words.index("prted")
    settings = dict(zip(words[at + 3 :: 3], words[at + 4 :: 3], strict=True))
    assert settings == {
        "ess": "env", "ess_base_nspace": "prterun-vm-12769@0", "ess_base_vpid": "2", "ess_base_num_procs": "3",
        "prte_hnp_uri": "prterun-vm-12769@0.0;tcp://192.0.2.2:33905:64,24;tcp6://[fd00::2]:59865:64,24",
        "plm": "ssh", "prte_do_not_resolve": "1", "prte_if_include": "ib0",
    }  # fmt: skip
    assert "agent.sh" not in shlex.join(words)
    assert read_told(OF_5.format(at=1), LAUNCH) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"prterun-vm-12769@0"', '"prterun-$(reboot)-1@0"'),
        ('"prterun-vm-12769@0.0;', '"prterun-vm-12769@0.0;`reboot`;'),
        ("tcp://192.0.2.2:33905:64,24", "tcp://x;reboot"),
        ("ess_base_vpid 2", "ess_base_vpid 1"),
        ('num_procs "3"', 'num_procs "4"'),
        ("abc-2 ", "abd-2 "),
        ("--prtemca ess_base_nspace", "--prtemca ess_base_jobid"),
    ],
)
def test_nor_does_open_mpi_5_have_anything_else_run_on_others(before: str, after: str) -> None:
    assert before in BOTH_OF_5
    assert isinstance(read_told(BOTH_OF_5.replace(before, after, 1), LAUNCH), str)


def test_nothing_is_started_before_all_were_told_of() -> None:
    assert read_told("", LAUNCH) is None
    assert read_told(TOLD.format(at=1), LAUNCH) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"vm,abc-[1:1-2]@0(3)"', '"$(reboot)"'),
        ('"169607168.0;', '"`reboot`;'),
        ("tcp://10.0.0.1,10.1.0.1:34511", "tcp://x;reboot"),
        ("-mca ess_base_vpid 2", "-mca ess_base_vpid 1"),
        ('num_procs "3"', 'num_procs "4"'),
        ("-mca ess_base_vpid 2", "-mca ess_base_vpid 2 -mca ess_base_vpid 1"),
        ("abc-2 ", "abc-7 "),
        ("abc-2 ", "abd-2 "),
        ("abc-2 ", "abc-1 "),
    ],
)
def test_a_node_can_not_have_anything_else_run_on_others(before: str, after: str) -> None:
    assert before in BOTH
    assert isinstance(read_told(BOTH.replace(before, after, 1), LAUNCH), str)


def test_more_settings_than_the_known_ones_reach_no_daemon() -> None:
    told = read_told(BOTH.replace("-mca pmix", "-mca mca_base_component_path /tmp/evil -mca pmix"), LAUNCH)
    assert isinstance(told, dict)
    assert "/tmp/evil" not in daemon_command(LAUNCH, told[1])


def test_mpi_is_held_to_the_declared_interface_and_one_process_to_each_gpu() -> None:
    words = " ".join(first_command(LAUNCH))
    for part in (
        "sh ib0 nobody mpirun", "--mca btl_tcp_if_include ib0", "-H localhost:8,abc-1:8,abc-2:8 -N 8",
        "-x NCCL_DEBUG=VERSION all_reduce_perf -g 1",
    ):  # fmt: skip
        assert part in words


LINE = "-" * 74 + "\n"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (  # Open MPI 5.0.11 without the program, of which the first line alone says nothing
            LINE + "prterun was unable to find the specified executable file, and therefore did\nnot launch the job.\n"
            "\nNOTE: A common cause for this error is misspelling a prterun command\n   line parameter option.\n"
            "\n   Node:       n1\n   Executable: sendrecv_perf\n" + LINE,
            "prterun was unable to find the specified executable file, and therefore did not launch the job.; Node: n1"
            "; Executable: sendrecv_perf",
        ),
        (  # Open MPI 4.1.4, a rank of which was killed
            LINE + "Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n" + LINE + LINE
            + "mpirun noticed that process rank 0 with PID 0 on node n1 exited on signal 9 (Killed).\n" + LINE,
            "mpirun noticed that process rank 0 with PID 0 on node n1 exited on signal 9 (Killed).",
        ),
        (  # Open MPI 5.0.11, which then ends with 0 and a byte of nought
            LINE + "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-n1-7@0,0] on node n1"
            "\n  Remote daemon: [prterun-n1-7@0,1] on node n2\n\nThis is usually due to a failure.\n" + LINE + "\0",
            "PRTE has lost communication with a remote daemon.; HNP daemon : [prterun-n1-7@0,0] on node n1; "
            "Remote daemon: [prterun-n1-7@0,1] on node n2",
        ),
        ("Welcome to n1\nsh: prted: not found\n", "sh: prted: not found"),
        ("Killed\n", "Killed"),
        ("\0\n", "it says nothing"),
    ],
)  # fmt: skip
def test_what_did_not_start_is_told_with_its_node_and_program(printed: str, said: str) -> None:
    assert why_not_started(printed) == said
