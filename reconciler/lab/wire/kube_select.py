"""Field and label selectors, parsed as API servers do. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from reconciler.lab.wire.kube_status import ApiError, bad_request

Json = Mapping[str, Any]
Matches = Callable[[Json], bool]

_FIELDS: Mapping[str, Callable[[Json], str]] = {
    "metadata.name": lambda item: item["metadata"]["name"],
    "metadata.namespace": lambda item: item["metadata"].get("namespace", ""),
    "spec.nodeName": lambda item: item.get("spec", {}).get("nodeName", ""),
    "spec.unschedulable": lambda item: str(item.get("spec", {}).get("unschedulable", False)).lower(),
    "status.phase": lambda item: item.get("status", {}).get("phase", ""),
}
_SELECTABLE = {
    "pods": ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"),
    "nodes": ("metadata.name", "spec.unschedulable"),
}
_OF_SET = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s!=,()]+)\s*(?P<op>==|!=|=)\s*(?P<value>[^\s!=,()]*)")
_EXISTS = re.compile(r"(?P<op>!?)\s*(?P<key>[^\s!=,()]+)")


def required_field(selector: str, field: str) -> str | None:
    """Return the value that the selector requires of this field, so that an index can serve it."""
    for key, op, value in _requirements(selector):
        if key == field and op != "!=":
            return value
    return None


def by_fields(selector: str, resource: str) -> Matches:
    allowed = _SELECTABLE.get(resource, ("metadata.name", "metadata.namespace"))
    wanted = _requirements(selector)
    for key, _, _ in wanted:
        if key not in allowed:
            raise bad_request(f'{resource}: field selector "{selector}": field label not supported: {key}')
    return lambda item: all((_FIELDS[key](item) == value) is (op != "!=") for key, op, value in wanted)


def by_labels(selector: str) -> Matches:
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    rest = selector.strip()
    while rest:
        test, end = _label_test(rest)
        tests.append(test)
        rest = rest[end:].lstrip().removeprefix(",").lstrip()
    return lambda item: all(test(item["metadata"].get("labels", {})) for test in tests)


def _label_test(text: str) -> tuple[Callable[[Mapping[str, str]], bool], int]:
    if found := _OF_SET.match(text):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return (lambda labels: labels.get(key) in values), found.end()
        return (lambda labels: labels.get(key) not in values), found.end()
    if found := _EQUAL.match(text):
        key, value, differs = found["key"], found["value"], found["op"] == "!="
        return (lambda labels: (labels.get(key) == value) is not differs), found.end()
    if found := _EXISTS.match(text):
        key, absent = found["key"], found["op"] == "!"
        return (lambda labels: (key in labels) is not absent), found.end()
    raise _unparsable(text)


def _requirements(selector: str) -> list[tuple[str, str, str]]:
    found = []
    for part in filter(None, selector.split(",")):
        match = _EQUAL.fullmatch(part.strip())
        if match is None:
            raise _unparsable(selector)
        found.append((match["key"], match["op"], match["value"]))
    return found


def _unparsable(selector: str) -> ApiError:
    return bad_request(f"unable to parse requirement: found '{selector}'")
