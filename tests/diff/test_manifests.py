"""Two renderings of a chart, compared value by value."""

from __future__ import annotations

import pytest

from reconciler.diff.manifests import HIDDEN, changes_between
from reconciler.model.releases import ValueChange

LIVE = """\
---
# Source: demo/templates/a.yaml
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 1, template: {spec: {containers: [{image: a}, {image: b}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: old, namespace: other}
"""


def test_equal_manifests_have_no_changes_whatever_their_order_and_comments() -> None:
    parts = LIVE.split("---\n")[1:]
    assert changes_between(LIVE, "---\n".join(reversed(parts)).replace("# Source", "# From"), "ns") == ()


def test_objects_and_values_that_differ_are_named() -> None:
    wanted = LIVE.replace("replicas: 1", "replicas: 3").replace("{image: b}", "{image: b, tty: true}")
    wanted = wanted.replace("name: old", "name: new")
    added, removed, changed = changes_between(LIVE, wanted, "ns")
    assert (added.object, added.change) == ("ConfigMap other/new", "added")
    assert (removed.object, removed.change) == ("ConfigMap other/old", "removed")
    assert changed.object == "Deployment ns/web"
    assert changed.values == (
        ValueChange("spec.replicas", "1", "3"),
        ValueChange("spec.template.spec.containers[1].tty", None, "true"),
    )


@pytest.mark.parametrize("key", ["data", "stringData"])
def test_what_a_secret_holds_is_never_shown(key: str) -> None:
    text = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s, labels: {{a: one}}}}\n{key}: {{password: hunter1}}\n"
    [found] = changes_between(text, text.replace("hunter1", "hunter2").replace("one", "two"), "ns")
    assert {one.path: (one.before, one.after) for one in found.values} == {
        f"{key}.password": (HIDDEN, HIDDEN), "metadata.labels.a": ("one", "two"),
    }  # fmt: skip
    [emptied] = changes_between(text, text.replace("{password: hunter1}", "x"), "ns")
    assert "hunter1" not in str(emptied)


def test_of_very_many_values_the_first_are_shown_and_the_others_counted() -> None:
    before, after = (
        "kind: ConfigMap\nmetadata: {name: big}\ndata:\n" + "".join(f"  k{n:03}: v{v}\n" for n in range(100))
        for v in (1, 2)
    )
    [found] = changes_between(before, after, "ns")
    assert (len(found.values), found.more) == (40, 60)


def test_nothing_is_installed_from_nothing() -> None:
    assert changes_between("", "", "ns") == ()
    assert [one.change for one in changes_between("", LIVE, "ns")] == ["added", "added"]
    with pytest.raises(ValueError, match="the manifest"):
        changes_between("{", LIVE, "ns")
