"""Whatever the spec looks like and whatever the nodes have: what was adopted is no drift, and nothing else moved."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.app.adopt import ObservedValues, edit_spec
from reconciler.diff.compare import Comparer
from reconciler.diff.ignore import IgnoreRules
from reconciler.model.desired import Fleet
from reconciler.model.observed import Observed
from reconciler.model.records import NodeRecord
from reconciler.spec.edit.accept import WriteLevel
from reconciler.spec.edit.files import SpecFiles
from tests import builders as b
from tests.adopt.fleets import load, nodes_as, specs

RULES = IgnoreRules((), b.NOW)


def drift(fleet: Fleet, seen: Mapping[str, Observed]) -> dict[tuple[str, str], tuple[object, object]]:
    """(node, path) -> (wanted, found), as `drift` tells it."""
    return {
        (item.node, item.path): (item.desired, item.observed)
        for name, node in fleet.nodes.items()
        for item in Comparer(RULES).compare(node, seen[name], NodeRecord(name))
    }


def wanted(fleet: Fleet, name: str) -> object:
    node = fleet.nodes[name]
    return (
        node.pool, node.endpoints, node.domains, node.state, node.serial, node.uuid, node.hostname, node.root_disk,
        node.persona, node.profile.digest,
    )  # fmt: skip


@settings(max_examples=25)
@given(st.data())
def test_what_is_adopted_is_no_drift_and_nothing_else_moves(data: st.DataObject) -> None:
    files = data.draw(specs())
    before = load(files)
    seen = {name: data.draw(nodes_as(name)) for name in before.nodes}
    chosen = data.draw(st.lists(st.sampled_from(sorted(before.nodes)), min_size=1, unique=True))
    contents = {name: text.encode() for name, text in files.items()}
    made = edit_spec(
        ObservedValues(before, chosen, "", seen, RULES), SpecFiles(contents, "fleet-spec"), WriteLevel.AUTO
    )
    after = load({name: text.decode() for name, text in made.files.contents().items()})

    adopted = {(item.node, item.path) for item in made.items}
    left = drift(after, seen)
    assert not adopted & left.keys()
    assert {key for key, _ in drift(before, seen).items() if key not in adopted} == left.keys()
    assert adopted <= {key for key in drift(before, seen) if key[0] in chosen}
    for name in before.nodes:
        if name not in {node for node, _ in adopted}:
            assert wanted(before, name) == wanted(after, name)
    for name, text in files.items():
        if name.endswith(".yaml"):
            changed = made.files.contents()[name].decode()
            assert set(re.findall(r"#.*", text)) <= set(re.findall(r"#.*", changed))  # every comment is still there
            untouched = [line for line in text.splitlines() if line in changed.splitlines()]
            assert len(untouched) >= len(text.splitlines()) - 6 * len(adopted)


@settings(max_examples=25)
@given(st.data())
def test_a_second_time_there_is_nothing_to_adopt(data: st.DataObject) -> None:
    files = data.draw(specs())
    before = load(files)
    seen = {name: data.draw(nodes_as(name)) for name in before.nodes}
    contents = {name: text.encode() for name, text in files.items()}
    first = edit_spec(
        ObservedValues(before, list(before.nodes), "", seen, RULES), SpecFiles(contents, "fleet-spec"), WriteLevel.AUTO
    )
    after = load({name: text.decode() for name, text in first.files.contents().items()})
    again = edit_spec(
        ObservedValues(after, list(after.nodes), "", seen, RULES),
        SpecFiles(first.files.contents(), "fleet-spec"),
        WriteLevel.AUTO,
    )
    assert not again.items
    assert not again.files.edited
