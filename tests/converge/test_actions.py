"""An action is one thing: its spec and its function. What is missing of an action fails a test here, by name."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Set
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from reconciler.converge.actions import FUNCTIONS
from reconciler.converge.actions.context import outcome_of
from reconciler.lab.hardware.faults import FAULTS
from reconciler.model.errors import DriverError, Failure
from reconciler.model.outcome import Ambiguous, Permanent, Transient
from reconciler.planner.node.actions import ACTIONS
from reconciler.spec.kinds.remediation_policy import RungAction
from tests.chaos.cases import CASES
from tests.conftest import ROOT

SPECS = Path("reconciler/planner/node/actions.py")
NEVER_ASKED = {
    "check_trust",  # trust is read off the node as soon as what it needs is there
    "reserve",  # no fleet of the matrix has spares: test_spares.py kills a runner in its midst
    "install_k3s",  # the spec of the matrix has no K3s: test_k3s_killed.py kills a runner at every command of a join,
    "configure_k3s",  # an upgrade and a change of files
    "await_operators",  # it writes nothing that counts: test_operators.py kills a runner while it waits
    "back_up",  # nor data that is saved: test_backup.py kills a runner at every command of a wipe with a backup
    "restore_backup",
    "hold_for_reimage",  # all nodes of the matrix have a BMC: test_by_person.py kills a runner
    "await_reimage",
    "sync_serving",  # test_serving_sync_real.py
    "degrade_serving",  # nor serving groups: test_serving.py kills a runner at any command, and test_serving_real.py
    "restore_serving",  # on real nodes
    "reset_bmc_from_host",  # no BMC of the matrix hangs: test_bmc_reset.py has those, with a crash in its midst
    "rotate_bmc_password",  # no spec of the matrix asks for it: test_bmc_password.py kills a runner at every call
    "renew_host_certificate",  # after weeks, as test_host_certificate.py has it, with a crash in its midst
}
# These need a person's consent or order, which no run of the matrix gives: test_decommission.py and test_repair.py kill
# each of them in its midst.
BY_CONSENT = {spec.name for spec in ACTIONS.values() if spec.decommissions or spec.repairs}


def assert_none(names: Set[str], lacks: str) -> None:
    assert not names, "; ".join(f"{name} {lacks}" for name in sorted(names))


def test_every_action_has_its_function() -> None:
    assert_none(ACTIONS.keys() - FUNCTIONS.keys(), "has no `@action` function in reconciler/converge/actions")


def test_every_function_has_its_action() -> None:
    assert_none(FUNCTIONS.keys() - ACTIONS.keys(), f"has no ActionSpec in {SPECS}")


def test_every_action_has_its_chaos_case() -> None:
    cases = {case.action for case in CASES}
    assert_none(ACTIONS.keys() - cases - NEVER_ASKED - BY_CONSENT, "has no Case in tests/chaos/cases.py")
    assert_none(cases - ACTIONS.keys(), f"has a Case, and no ActionSpec in {SPECS}")


def test_every_action_has_a_test_of_its_own() -> None:
    files = (path for path in (ROOT / "tests" / "converge").glob("test_*.py") if path.name != Path(__file__).name)
    trees = [ast.parse(path.read_text()) for path in files]
    tried = set().union(*(_strings(ast.walk(tree)) for tree in trees if ".act(" in ast.unparse(tree)))
    assert_none(ACTIONS.keys() - tried, "is not tried with World.act in any test of tests/converge")


def test_no_other_list_of_actions_is_kept() -> None:
    """A set of names elsewhere is a property of the specs that nobody sees when an action is added."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {', '.join(sorted(names))}"
        for path in sorted((ROOT / "reconciler").rglob("*.py"))
        if path != ROOT / SPECS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Set | ast.List | ast.Tuple | ast.Dict)
        if len(names := _strings(ast.iter_child_nodes(node)) & ACTIONS.keys()) > 1
    ]
    assert not found, f"derive it from {SPECS}"


def _strings(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_specs_name_actions_and_faults_that_there_are() -> None:
    for spec in ACTIONS.values():
        assert not (spec.covers | spec.undoes) - ACTIONS.keys(), spec.name
        assert spec.fault is None or spec.fault in FAULTS, spec.name
    assert {rung.value for rung in RungAction} <= ACTIONS.keys()


def test_no_actions_undo_each_other() -> None:
    """Or a run could do them in turn for ever: what one undoes is counted anew."""
    undoes = {name: spec.undoes - {name} for name, spec in ACTIONS.items()}
    TopologicalSorter(undoes).prepare()  # raises CycleError


# --- a throw-away action, added to a copy of the tree ---

SPEC = """\
    ActionSpec(
        name="blink", concern=Concern.HARDWARE, disruption=Disruption.NONE, seconds=7,
        requires=(c.POWER_ON,), achieves=("led_ok",), forbids=("led_ok",), activates=_BOOT, boots=True, flashes=True,
        takes_out=True, proved_by_boot=True, covers=frozenset({"join"}), undoes=frozenset({"set_bios"}),
        fault="bmc_503",
    ),
"""
FUNCTION = '''

@action
async def blink(ctx: ActionContext) -> Outcome:
    """Switch the locator LED on."""
    ctx.step("blinking")
    return Done("it blinks")
'''
CASE = '    Case("blink", "blink"),\n'
TEST = """\
from reconciler.lab.failure_rates import FailureRates
from reconciler.model.outcome import Done
from reconciler.model.plan import PlannedAction
from reconciler.model.records import Attempt
from reconciler.model.vocab import Activation, Certainty
from reconciler.planner.node import workload
from reconciler.planner.node.actions import NodeTraits
from reconciler.planner.node.catalogue import catalogue
from reconciler.planner.node.retest import voided_since_certificate
from reconciler.planner.node.search import search
from reconciler.planner.node.staged import is_staged
from tests import builders as b


def test_blink(world):
    here = world(nodes=1)
    assert here.act("blink") == Done("it blinks")


def test_everything_knows_it(world):
    rows = catalogue(NodeTraits(b.node(), True, True, False, False))
    [row] = search(rows, frozenset({"power_on"}), frozenset({"led_ok"}))
    assert (row.id, row.seconds, row.reboots) == ("blink", 7, 1)
    planned = PlannedAction("blink", "", row.concern, (), row.disruption, 7.0, Certainty.EXACT, (), ())
    assert workload.disrupts(planned) and workload.is_braked(planned) and workload.flashes(planned)
    machine = world(nodes=1).machine("n0")
    FailureRates({"blink": 1.0}, seed=1).inject(machine, "blink")
    assert "bmc_503" in machine.state.faults
"""


def _pytest(tree: Path) -> str:
    words = (sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", "not throw_away")
    files = [str(path) for name in ("actions", "blink") for path in tree.glob(f"tests/converge/test_{name}.py")]
    return subprocess.run([*words, *files], cwd=tree, capture_output=True, text=True, timeout=120).stdout


def test_a_throw_away_action_is_its_spec_its_function_and_its_cases(tmp_path: Path) -> None:
    for folder in ("reconciler", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "golden"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def add(path: str, text: str, before: str = "") -> None:
        file = tmp_path / path
        source = file.read_text()
        at = source.index(before) if before else len(source)
        file.write_text(source[:at] + text + source[at:])

    add(str(SPECS), SPEC, before=")  # fmt: skip\n\nACTIONS")
    told = _pytest(tmp_path)
    assert "3 failed" in told, told
    for lacks in ("no `@action` function", "no Case", "not tried"):
        assert re.search(rf"AssertionError: blink (has|is) {lacks}", told), told

    add("reconciler/converge/actions/acceptance.py", FUNCTION)
    add("tests/chaos/cases.py", CASE, before='    Case("admit", "admit"),\n')
    (tmp_path / "tests/converge/test_blink.py").write_text(TEST)
    told = _pytest(tmp_path)
    assert "failed" not in told, told
    assert "passed" in told, told


@pytest.mark.parametrize("kind", list(Failure))
def test_every_failure_of_a_driver_has_one_outcome(kind: Failure) -> None:
    expected = {
        Failure.AMBIGUOUS: Ambiguous,
        Failure.AUTH: Permanent,
        Failure.REJECTED: Permanent,
        Failure.UNSUPPORTED: Permanent,
    }
    outcome = outcome_of(DriverError(kind, "why", retry_after=7.0))
    assert type(outcome) is expected.get(kind, Transient)
    assert "why" in outcome.detail
    if isinstance(outcome, Transient):
        assert outcome.retry_after_s == 7.0
