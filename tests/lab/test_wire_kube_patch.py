"""The three kinds of patch, on the examples of their specifications and of Kubernetes' documentation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lab.wire.kube_patch import BadPatch, json_patch, merge_patch, strategic_merge_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 6902, appendix A
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "q"}], {"foo": ["bar", "q", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "q", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        ({"foo": ["a", "b", "c"]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": ["b", "c", "a"]}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": None}, [{"op": "test", "path": "/foo", "value": None}], {"foo": None}),
        ({"foo": "bar"}, [{"op": "copy", "from": "/foo", "path": "/b"}], {"foo": "bar", "b": "bar"}),
        ({"foo": "bar"}, [{"op": "add", "path": "", "value": [1]}], [1]),
    ],
)
def test_json_patch(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert json_patch(target, patch) == result
    assert target == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/baz", "value": "bar"},
        {"op": "add", "path": "/nothing/below", "value": 1},
        {"op": "add", "path": "/list/3", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "replace", "path": "/nothing", "value": 1},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "remove", "path": "/nothing"},
        {"op": "remove", "path": "/list/2"},
        {"op": "add", "path": "/baz/below", "value": 1},
        {"op": "add", "path": "/baz"},
        {"op": "frobnicate", "path": "/baz"},
        "add",
    ],
)
def test_json_patch_that_can_not_be_applied(operation: Any) -> None:
    with pytest.raises(BadPatch):
        json_patch({"baz": "qux", "list": [1, 2]}, [operation])


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


@given(JSON, JSON)
def test_merge_patch_is_idempotent_and_leaves_its_arguments(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == before


TAINT = {"key": "a", "effect": "NoSchedule"}
READY = {"type": "Ready", "status": "True", "reason": "x"}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # Taints have no merge key: the list is replaced, and a patch without a taint removes it.
        ({"spec": {"taints": [TAINT]}}, {"spec": {"taints": [TAINT | {"key": "b"}]}},
         {"spec": {"taints": [TAINT | {"key": "b"}]}}),
        ({"spec": {"taints": [TAINT], "unschedulable": True}}, {"spec": {"taints": None, "unschedulable": None}},
         {"spec": {}}),
        # The patches of kubectl taint and kubectl cordon.
        ({"spec": {}}, {"spec": {"$setElementOrder/taints": [{"key": "a"}], "taints": [TAINT]}},
         {"spec": {"taints": [TAINT]}}),
        # Conditions merge by type.
        ({"status": {"conditions": [READY, {"type": "DiskPressure", "status": "False"}]}},
         {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
         {"status": {"conditions": [READY | {"status": "False"}, {"type": "DiskPressure", "status": "False"}]}}),
        ({"status": {"conditions": [READY]}}, {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}},
         {"status": {"conditions": []}}),
        ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
         {"metadata": {"labels": {"b": "2"}}}),
        ({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["c", "a"]}},
         {"metadata": {"finalizers": ["a", "b", "c"]}}),
        ({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
         {"metadata": {"finalizers": ["b"]}}),
    ],
)  # fmt: skip
def test_strategic_merge_patch(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy((target, patch))
    assert strategic_merge_patch(target, patch) == result
    assert (target, patch) == before


def test_a_row_without_its_merge_key_is_refused() -> None:
    with pytest.raises(BadPatch, match="merge key: type"):
        strategic_merge_patch({}, {"status": {"conditions": [{"status": "True"}]}})
