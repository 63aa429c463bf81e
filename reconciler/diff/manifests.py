"""Compare two renderings of a chart, object by object and value by value.

What a Secret holds is never shown: that it differs is said, and how is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.model.releases import ObjectChange, ValueChange
from reconciler.strict_yaml.parse import UnreadableFile, parse_yaml

MOST_VALUES: Final = 40  # of one object; the others are counted
HIDDEN: Final = "(not shown)"
_SECRET_KEYS: Final = ("data", "stringData")
_LONGEST: Final = 200

Json = Mapping[str, Any]
Identity = tuple[str, str, str]  # kind with its group, namespace, name


def changes_between(live: str, wanted: str, namespace: str) -> tuple[ObjectChange, ...]:
    """Return what turns one manifest into the other. Raise ValueError where one is no YAML.

    `namespace`: of objects that name none.
    """
    before, after = objects_of(live, namespace), objects_of(wanted, namespace)
    found = [ObjectChange(_name(key), "added") for key in after.keys() - before.keys()]
    found += [ObjectChange(_name(key), "removed") for key in before.keys() - after.keys()]
    for key in before.keys() & after.keys():
        values = list(_differences(before[key], after[key]))
        if values:
            hidden = tuple(_masked(key, one) for one in values[:MOST_VALUES])
            found.append(ObjectChange(_name(key), "changed", hidden, max(0, len(values) - MOST_VALUES)))
    return tuple(sorted(found, key=lambda one: one.object))


def objects_of(text: str, namespace: str) -> dict[Identity, Json]:
    """Return the objects of a manifest by kind with its group, namespace and name.

    `namespace`: of objects that name none. Raise ValueError where it is no YAML.
    """
    if not text.strip():
        return {}
    try:
        documents, _ = parse_yaml(text, "the manifest")
    except UnreadableFile as error:
        raise ValueError(str(error.diagnostic)) from None
    found: dict[Identity, Json] = {}
    for document in documents:
        if isinstance(document.data, dict):
            found[_identity(document.data, namespace)] = document.data
    return found


def _identity(data: Json, namespace: str) -> Identity:
    metadata = data.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    group = str(data.get("apiVersion", "")).rpartition("/")[0]
    kind = str(data.get("kind", ""))
    return f"{kind}.{group}" if group else kind, str(metadata.get("namespace") or namespace), str(metadata.get("name"))


def _name(key: Identity) -> str:
    kind, namespace, name = key
    return f"{kind.partition('.')[0]} {namespace}/{name}"


def _differences(before: Any, after: Any, path: str = "") -> Iterator[ValueChange]:
    """Yield the leaves that differ, in order of their paths."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys(), key=str):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(before.get(key), after.get(key), below)
    elif isinstance(before, list) and isinstance(after, list):
        for at in range(max(len(before), len(after))):
            old, new = (items[at] if at < len(items) else None for items in (before, after))
            yield from _differences(old, new, f"{path}[{at}]")
    elif before != after or type(before) is not type(after):
        yield ValueChange(path, _shown(before), _shown(after))


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _masked(key: Identity, one: ValueChange) -> ValueChange:
    if key[0] != "Secret" or one.path.partition(".")[0] not in _SECRET_KEYS:
        return one
    return ValueChange(one.path, one.before and HIDDEN, one.after and HIDDEN)
