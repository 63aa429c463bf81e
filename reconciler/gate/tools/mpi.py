"""Start a program of Open MPI 4 or 5 over several nodes that don't trust one another.

`mpirun` runs on the first node, and hands what would start its daemon on each other node to a script in place of ssh,
which only writes it down. The reconciler reads that, and starts the daemons over its own connections, as Kubeflow's MPI
operator does with `kubectl exec`. Open MPI 5 starts by PRRTE, which has other names for the same and needs no list of
nodes. Of what a node wrote, the few values below are taken, each only in its known form;
the command itself is ours, and no shell sees it. A daemon runs whatever its mpirun says, so all of it runs as a user
without rights where the login is root's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.gate.tools.shell import SCRATCH, in_scratch

USER: Final = "nobody"
MOST: Final = 64  # nodes, of which each has a connection of its own
# As root, everything that follows runs as $user: with its groups, as GPUs may belong to one, and with locked memory
# for RDMA. Sessions of Open MPI go into a directory of that user, which goes with the rest.
_AS_USER: Final = """user=$1; shift; mkdir own told || exit 73; chmod 755 . || exit 73
if [ "$(id -u)" = 0 ]; then
  group=$(id -g "$user") && chown "$user" own told || exit 77
  ulimit -l unlimited 2>/dev/null || :
  set -- setpriv --reuid="$user" --regid="$group" --init-groups -- "$@"
fi
export TMPDIR="$PWD/own" HOME="$PWD/own"
"""
_RUN: Final = '"$@" </dev/null & p=$!; wait "$p"; r=$?; p=; exit $r'
_FIRST: Final = (
    "interface=$1; shift; "  # names of members are ours, and no resolver's
    + _AS_USER
    + r"""said=$(mpirun --version 2>&1 | grep -m 1 mpirun)
case $said in
  "mpirun (Open MPI) 4."*)
    export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_plm_rsh_agent="sh $PWD/agent"
    export OMPI_MCA_orte_do_not_resolve=1 OMPI_MCA_oob_tcp_if_include="$interface" ;;
  "mpirun (Open MPI) 5."*)
    export PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_no_tree_spawn=1 PRTE_MCA_plm_ssh_agent="sh $PWD/agent"
    export PRTE_MCA_prte_do_not_resolve=1 PRTE_MCA_prte_if_include="$interface" ;;
  *not\ found*) echo 'mpirun: command not found' >&2; exit 127 ;;
  *) echo "mpirun is not of Open MPI 4 or 5: $said" >&2; exit 69 ;;
esac
printf '%s\n' "cd '$PWD/told' && echo \"\$*\" >\"\$1.part\" && mv \"\$1.part\" \"\$1\"" >agent
"""
    + _RUN
)
_TOLD: Final = f'cat "${{TMPDIR:-/tmp}}/{SCRATCH}".??????/told/"$1"-*[0-9] 2>/dev/null'
_NUMBERS: Final = {"ess_base_vpid": r"[0-9]{1,4}", "ess_base_num_procs": r"[0-9]{1,4}"}
_PLACES: Final = r"(?:;tcp6?://[0-9a-fA-F.,:\[\]]{1,500})+"
_RUN_OF_5: Final = r"prterun-[A-Za-z0-9._-]{1,255}-[0-9]{1,10}@0"
_VALUES: Final = {  # by daemon
    "orted": {
        "ess_base_jobid": r"[0-9]{1,10}",
        **_NUMBERS,
        "orte_node_regex": r"[A-Za-z0-9.,:@()\[\]-]{1,4000}",
        "orte_hnp_uri": rf"[0-9]{{1,10}}\.0{_PLACES}",
    },
    "prted": {"ess_base_nspace": _RUN_OF_5, **_NUMBERS, "prte_hnp_uri": rf"{_RUN_OF_5}\.0{_PLACES}"},
}


@dataclass(frozen=True, slots=True)
class Launch:
    """A program and how it runs: `ranks` processes on each of `nodes`, which find each other over `interface`.

    `name`: of this run, in letters, which no earlier one had: what that has left is no news.
    """

    program: tuple[str, ...]
    environment: Mapping[str, str]
    nodes: int
    ranks: int
    interface: str
    user: str = USER
    name: str = "member"


def first_command(launch: Launch) -> tuple[str, ...]:
    """Return the command for the first node. It waits for a daemon on each of the others."""
    hosts = [f"localhost:{launch.ranks}", *(f"{launch.name}-{at}:{launch.ranks}" for at in range(1, launch.nodes))]
    settings = {
        # MPI only begins the test and waits for its end, so its plainest ways will do: no memory is shared, of which
        # files would stay behind, and no adapter is used that the test measures.
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": launch.interface,
        "coll_hcoll_enable": "0",
    }
    mca = [word for name, value in settings.items() for word in ("--mca", name, value)]
    exported = [word for name, value in launch.environment.items() for word in ("-x", f"{name}={value}")]
    mapped = ("-H", ",".join(hosts), "-N", str(launch.ranks), "--bind-to", "none")
    run = ("mpirun", "--leave-session-attached", *mca, *mapped, *exported, *launch.program)
    return in_scratch(_FIRST, launch.interface, launch.user, *run)


def told_command(launch: Launch) -> tuple[str, ...]:
    """Return the command that prints what `mpirun` has told so far, a line for each node."""
    return ("env", "LC_ALL=C", "sh", "-c", _TOLD, "sh", launch.name)


def read_told(printed: str, launch: Launch) -> Mapping[int, Mapping[str, str]] | str | None:
    """Return what the daemon of each node from 1 on needs; None before all were told of, a sentence when it is none."""
    lines, nodes = printed.splitlines(), launch.nodes
    if len(lines) < nodes - 1:
        return None
    found: dict[int, dict[str, str]] = {}
    for line in lines:
        name = re.match(rf"{launch.name}-([0-9]{{1,4}}) ", line)
        forms = _VALUES["prted" if " --prtemca " in line else "orted"]
        values = {key: _value(line, key, form) for key, form in forms.items()}
        known = {key: value for key, value in values.items() if value is not None}
        if name is None or len(known) < len(forms) or known["ess_base_num_procs"] != str(nodes):
            return "mpirun asks for its daemons in a form that is not known"
        if known["ess_base_vpid"] != name[1]:
            return f"mpirun asks for daemon {known['ess_base_vpid']} on member {name[1]}"
        found[int(name[1])] = known
    if found.keys() != set(range(1, nodes)):
        return "mpirun asks for daemons on other nodes than those of the test"
    return found


def _value(line: str, key: str, form: str) -> str | None:
    found = re.findall(rf" --?(?:prte)?mca {key} (\S+)", line)
    text = found[0].strip('"') if len(found) == 1 else ""
    return text if re.fullmatch(form, text) else None


def daemon_command(launch: Launch, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command for another node than the first: its daemon, which stays in the foreground."""
    if "prte_hnp_uri" in values:
        settings = {
            "ess": "env",
            **values,
            "plm": "ssh",
            "prte_do_not_resolve": "1",
            "prte_if_include": launch.interface,
        }
        mca = [word for name, value in settings.items() for word in ("--prtemca", name, value)]
        return in_scratch(_AS_USER + _RUN, launch.user, "prted", "--leave-session-attached", *mca)
    settings = {
        "ess": "env",
        **values,
        "orte_leave_session_attached": "1",
        "plm": "rsh",
        "orte_do_not_resolve": "1",
        "oob_tcp_if_include": launch.interface,
        "hwloc_base_binding_policy": "none",
    }
    mca = [word for name, value in settings.items() for word in ("-mca", name, value)]
    return in_scratch(_AS_USER + _RUN, launch.user, "orted", *mca)


def why_not_started(stderr: str) -> str:
    """Return the sentence that says most: of a program that is not there, of mpirun or its daemon, or the first one."""
    lines = [line.strip() for line in stderr.splitlines() if not line.startswith("---")]
    if missing := next((line for line in lines if line.startswith("env: ")), ""):
        return missing
    named = [line for line in lines if re.search("mpirun|orted|prterun|prted", line)]
    if named:
        return named[-1]
    paragraph = " ".join(lines).strip().partition("  ")[0]
    return paragraph or "it says nothing"
