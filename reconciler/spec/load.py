"""Read every YAML file of a spec into documents, within the bounds on the size of a spec."""

from __future__ import annotations

from typing import Final

from reconciler.model.errors import Diagnostic, Position
from reconciler.spec.tree import SpecTooLarge, SpecTree
from reconciler.strict_yaml.parse import Document, UnreadableFile, parse_yaml

MAX_VALUES_IN_ALL: Final = 1_000_000  # 100 MB of memory


def load_documents(tree: SpecTree) -> tuple[list[Document], list[Diagnostic]]:
    """Return the documents of all YAML files, and a problem for each file that can't be read."""
    documents: list[Document] = []
    problems: list[Diagnostic] = []
    left = MAX_VALUES_IN_ALL
    try:
        for name in tree.yaml_names():
            parsed, found = _read_documents(tree, name)
            left = _take(left, parsed, tree.where(name))
            documents += parsed
            problems += found
    except UnreadableFile as problem:
        problems.append(problem.diagnostic)
    return documents, problems


def _read_documents(tree: SpecTree, name: str) -> tuple[list[Document], list[Diagnostic]]:
    try:
        return parse_yaml(tree.text(name), str(tree.where(name)))
    except SpecTooLarge:
        raise
    except UnreadableFile as problem:
        return [], [problem.diagnostic]


def _take(left: int, documents: list[Document], at: Position) -> int:
    """Return how many values the other files may still have. Raise SpecTooLarge when these documents have too many."""
    left -= sum(len(document.values) for document in documents)
    if left < 0:
        problem = f"with this file the spec has more than {MAX_VALUES_IN_ALL} values, aliases expanded"
        raise SpecTooLarge(at, problem, "list nodes in CSV files, and share values in profiles")
    return left
