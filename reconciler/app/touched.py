"""Which nodes a change of some files is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.model.desired import Fleet


def touched(fleet: Fleet, below: str, files: Collection[str]) -> frozenset[str]:
    """Nodes that a value of a changed file is for. `below`: the spec's folder, from the top of the repository.

    A file of the spec that sets no value of any node, such as a new one or a key, may be about every node.
    """
    inside = {file.removeprefix(f"{below}/") if below else file for file in files if _is_in(file, below)}
    by_file = _readers(fleet)
    found: set[str] = set()
    for file in inside:
        found |= by_file.get(file, fleet.nodes.keys())
    return frozenset(found)


def _is_in(file: str, below: str) -> bool:
    return not below or file.startswith(f"{below}/")


def _readers(fleet: Fleet) -> Mapping[str, set[str]]:
    """File of the spec -> nodes with a value that it sets."""
    directory = fleet.source.directory
    found: dict[str, set[str]] = {}
    shared: dict[int, frozenset[str]] = {}  # nodes of a kind have one profile
    for name, node in fleet.nodes.items():
        profile = node.profile
        if id(profile) not in shared:
            shared[id(profile)] = frozenset(at.file for at in profile.provenance.values())
        for file in shared[id(profile)] | {at.file for at in node.provenance.values()}:
            found.setdefault(file.removeprefix(directory).lstrip("/"), set()).add(name)
    return found
