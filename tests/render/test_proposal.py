"""The text of the pull request that adopts drift: of a length that forges take, and honest on what it leaves out."""

from __future__ import annotations

import re

from reconciler.render.markdown import CHARACTERS
from reconciler.render.proposal import drift_text
from reconciler.spec.edit.accept import WrittenValue
from tests.render.test_text import item, report


def test_it_has_what_is_adopted_and_what_is_not() -> None:
    written = WrittenValue("bios.X", ("n1",), "pools/a.yaml:3", "this line applies to no other node")
    made = report(item("n1", found="Off"), item("n2", "bios.Y", "Auto"))
    text = drift_text(made, {("n1", "bios.X")}, [written], ["n2: never adopted"]).replace("\\", "")
    adopted, _, others = text.partition("#### Not adopted")
    assert all(said in adopted for said in ("n1", "bios.X", "pools/a.yaml:3", "Off"))
    assert "n2" not in adopted
    assert all(said in others for said in ("n2", "bios.Y", "Auto", "n2: never adopted"))
    assert "not shown" not in text


def test_a_long_one_is_cut_and_says_of_how_many_nodes_nothing_is_shown() -> None:
    """GitHub refuses more than 65,536 characters, and would do so after the branch was written."""
    nodes = [f"n{at:04d}" for at in range(3000)]
    items = [item(node, f"bios.{'X' * 60}", "a|b" * 300) for node in nodes]
    written = [WrittenValue(one.path, (one.node,), "its own entry", "other nodes keep what they have") for one in items]
    left = [f"{node}: {'why ' * 200}" for node in nodes]
    for adopted in ({(one.node, one.path) for one in items}, {(one.node, one.path) for one in items[:1500]}):
        text = drift_text(report(*items), adopted, written, left)
        assert len(text) <= CHARACTERS
        rows = set(re.findall(r"^\| (n\d{4}) \| bios.*\|.*\|.*\|.*\|$", text, re.MULTILINE))
        assert rows
        assert f"{len(nodes) - len(rows):,} nodes not shown here" in text
