"""The nodes that --limit and --exclude select."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from reconciler.model.desired import Desired, Fleet
from reconciler.model.errors import UsageError, did_you_mean
from reconciler.model.plan import Scope
from reconciler.spec.ranges import expand


def select_nodes(fleet: Fleet, limit: tuple[str, ...], exclude: tuple[str, ...]) -> tuple[list[str], Scope]:
    """Return the selected names in the order of the fleet, and their scope. `exclude` applies after `limit`.

    Raise UsageError for an expression that matches no node, and when no node is left.
    """
    chosen = set(fleet.nodes)
    if limit:
        chosen = set().union(*(_matching(fleet, expression) for expression in _split(limit)))
    for expression in _split(exclude):
        chosen -= _matching(fleet, expression)
    names = [name for name in fleet.nodes if name in chosen]
    if not names:
        raise UsageError("--limit and --exclude leave no node")
    return names, Scope(limit, exclude, len(names), len(fleet.nodes))


def _split(expressions: Iterable[str]) -> list[str]:
    """Split at commas outside brackets. Raise UsageError for an empty part, such as an unset variable of a script."""
    parts = []
    for expression in expressions:
        depth, current = 0, ""
        for char in expression + ",":
            depth += (char == "[") - (char == "]")
            if depth not in (0, 1):
                break
            if char == "," and depth == 0:
                parts.append(current.strip())
                current = ""
            else:
                current += char
        if current:
            raise UsageError(f"{expression!r}: its brackets do not match; a range is gpu-a[001-008]")
    if not all(parts):
        raise UsageError("an expression of --limit or --exclude is empty")
    return parts


def _matching(fleet: Fleet, expression: str) -> set[str]:
    key, equals, value = expression.partition("=")
    if equals:
        found = {name for name, node in fleet.nodes.items() if _has_label(node, key, value)}
    elif "[" in expression:
        found = set(_expanded(expression)) & fleet.nodes.keys()
    else:
        found = {name for name in fleet.nodes if fnmatchcase(name, expression)}
    if not found:
        raise UsageError(f"{expression!r} matches no node of fleet {fleet.settings.fleet}; {_hint(fleet, expression)}")
    return found


def _hint(fleet: Fleet, expression: str) -> str:
    """Return the nearest known name, or the forms of an expression when it is a pattern or nothing is near."""
    key, equals, value = expression.partition("=")
    known = {label for node in fleet.nodes.values() if (label := _label(node, key))} if equals else fleet.nodes
    near = "" if set(expression) & set("*?[") else did_you_mean(value if equals else expression, known)
    if near.startswith("did you mean"):
        return near
    labels = sorted({label for node in fleet.nodes.values() for label in node.domains})
    return (
        f"expressions are pool=NAME, {', '.join(f'{label}=VALUE' for label in labels)}, a node name, a*, or a[001-008]"
    )


def _expanded(expression: str) -> Iterable[str]:
    try:
        return expand(expression)
    except ValueError as error:
        raise UsageError(f"{expression!r}: {error}") from None


def _has_label(node: Desired, key: str, pattern: str) -> bool:
    label = _label(node, key)
    return label is not None and fnmatchcase(label, pattern)


def _label(node: Desired, key: str) -> str | None:
    return node.pool if key == "pool" else node.domains.get(key)
