"""The three kinds of PATCH of a Kubernetes API server, on plain JSON. Pure.

Strategic merge differs from JSON merge only for lists: a list whose schema has a merge key merges by it, the others,
`spec.taints` among them, are replaced whole. Nothing here changes its arguments.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

MERGE_KEYS: dict[tuple[str, ...], str] = {  # of the objects that this server holds
    ("metadata", "ownerReferences"): "uid",
    ("status", "conditions"): "type",
    ("status", "addresses"): "type",
    ("spec", "containers"): "name",
    ("spec", "volumes"): "name",
}
_SETS: set[tuple[str, ...]] = {("metadata", "finalizers")}  # lists of plain values that merge


class BadPatch(Exception):
    """The patch can't be applied to this object."""


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON patch (RFC 6902)."""
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise BadPatch("a JSON patch is a list of operations")
    document = {"": deepcopy(target)}
    for operation in operations:
        match operation:
            case {"op": "add" | "replace" | "test" as op, "path": str(path), "value": value}:
                _write(document, op, path, deepcopy(value))
            case {"op": "remove", "path": str(path)}:
                _take(document, path)
            case {"op": "move", "path": str(path), "from": str(origin)}:
                _write(document, "add", path, _take(document, origin))
            case {"op": "copy", "path": str(path), "from": str(origin)}:
                holder, key = _locate(document, origin)
                _write(document, "add", path, deepcopy(_at(holder, key)))
            case _:
                raise BadPatch(f"unknown operation {operation}")
    return document[""]


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = deepcopy(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge_patch(target: Any, patch: Any, path: tuple[str, ...] = ()) -> Any:
    if not isinstance(patch, dict):
        return deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {key: deepcopy(value) for key, value in patch.items() if key != "$patch"}
    result = deepcopy(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith(("$setElementOrder/", "$retainKeys")):
            continue  # they order merged lists and prune unions; no list here depends on either
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [item for item in result.get(field, []) if item not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key), value, (*path, key))
        else:
            result[key] = strategic_merge_patch(result.get(key), value, (*path, key))
    return result


def _merge_list(target: Any, patch: list[Any], path: tuple[str, ...]) -> list[Any]:
    current = target if isinstance(target, list) else []
    if path in _SETS:
        return list(dict.fromkeys([*current, *patch]))
    merge_key = MERGE_KEYS.get(path)
    if merge_key is None or {"$patch": "replace"} in patch:
        return [deepcopy(item) for item in patch if item != {"$patch": "replace"}]
    rows = {row[merge_key]: row for row in current}
    for item in patch:
        if not isinstance(item, dict) or merge_key not in item:
            raise BadPatch(f"{'.'.join(path)}: map: {item} does not contain declared merge key: {merge_key}")
        if item.get("$patch") == "delete":
            rows.pop(item[merge_key], None)
        else:
            rows[item[merge_key]] = strategic_merge_patch(rows.get(item[merge_key]), item, path)
    return list(rows.values())


def _locate(document: Any, pointer: str) -> tuple[Any, str]:
    """Return the container and the key of a JSON pointer. The whole document is the value at key ""."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")]
    holder = document
    for key in keys[:-1]:
        holder = _at(holder, key)
    return holder, keys[-1]


def _at(holder: Any, key: str) -> Any:
    if isinstance(holder, list):
        return holder[_index(key, len(holder) - 1)]
    if isinstance(holder, dict) and key in holder:
        return holder[key]
    raise BadPatch(f"no {key}")


def _index(key: str, last: int) -> int:
    if not key.isdecimal() or int(key) > last:
        raise BadPatch(f"no position {key}")
    return int(key)


def _write(document: Any, op: str, path: str, value: Any) -> None:
    holder, key = _locate(document, path)
    if op != "add":
        current = _at(holder, key)
        if op == "test" and current != value:
            raise BadPatch(f"testing value {path} failed")
    if isinstance(holder, dict):
        holder[key] = value
    elif not isinstance(holder, list):
        raise BadPatch(f"{path}: not inside an object or a list")
    elif op == "add":
        holder.insert(len(holder) if key == "-" else _index(key, len(holder)), value)
    else:
        holder[_index(key, len(holder) - 1)] = value


def _take(document: Any, path: str) -> Any:
    holder, key = _locate(document, path)
    value = _at(holder, key)
    if isinstance(holder, list):
        del holder[_index(key, len(holder) - 1)]
    else:
        del holder[key]
    return value
