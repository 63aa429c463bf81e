"""The `adopt` use case: edit the spec so that it wants what nodes have, prove the edit, and write the files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reconciler.app.node_selection import select_nodes
from reconciler.app.workspace import Workspace
from reconciler.diff.adopt import IMAGE, NotAdoptable, adoptable, check_path, objections
from reconciler.diff.compare import Comparer
from reconciler.diff.facts import managed
from reconciler.diff.ignore import IgnoreRules
from reconciler.diff.readings import Missing, host, hot
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.errors import ReconcilerError, Refused, SpecError, UsageError, did_you_mean
from reconciler.model.observed import Observed
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Concern
from reconciler.planner.node.corroboration import identity
from reconciler.render.redact import Redaction
from reconciler.render.text import clock, fold
from reconciler.spec import check_spec
from reconciler.spec.edit.accept import WantedValue, WriteLevel, WrittenValue, accept
from reconciler.spec.edit.files import SpecFiles
from reconciler.spec.tree import SpecTree
from reconciler.strict_yaml.parse import UnreadableFile

_PATH: Final = re.compile(rf"(.+?)\.((?:{'|'.join(Concern)})(?:\..+)?)")
_IMAGES: Final = ("image.name", "image.version")


@dataclass(frozen=True, slots=True)
class Adoption:
    """An edit of the spec that was proved, in `files`. `left`: sentences on why other drift is not adopted."""

    files: SpecFiles
    items: tuple[DriftItem, ...]
    written: tuple[WrittenValue, ...]
    left: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedValues:
    """The values to adopt: those of `nodes` at and below `path`, "" for all, as in `seen`.

    `excluded`: node -> why none of its values is adopted, as `unadoptable_nodes` returns it. `redaction`: of the
    sentences on what is left.
    """

    fleet: Fleet
    nodes: Sequence[str]
    path: str
    seen: Mapping[str, Observed]
    rules: IgnoreRules
    excluded: Mapping[str, str] = field(default_factory=dict)
    redaction: Redaction = field(default_factory=lambda: Redaction({}))


@dataclass(slots=True)
class _Choice:
    """The values to adopt, the drift items that they settle, and why other items are left."""

    redaction: Redaction
    wanted: list[WantedValue] = field(default_factory=list)
    items: list[DriftItem] = field(default_factory=list)
    left: dict[str, dict[str, None]] = field(default_factory=dict)  # why -> nodes

    def skip(self, node: str, item: DriftItem, why: str, *, one: bool) -> None:
        """Note why `item` is not adopted. Values of a silent source share one reason, unless `one` was requested."""
        if item.kind is DriftClass.UNKNOWN and not one:
            why = f"values of {item.source} could not be read ({item.detail}), and are not adopted"
        self.left.setdefault(self.redaction.of(node).text(why), {})[node] = None


def adopt(workspace: Workspace, what: str, observation: Path | None, at: str, *, dry_run: bool) -> Adoption:
    """Edit the spec so that it asks for what `what` has, which is NODES or NODES.path, and write it unless `dry_run`.

    The values are read from the nodes, or taken from the file `observation`. `at`: auto, node, pool or origin.
    """
    spec = workspace.request.spec
    files = SpecFiles(read_tree(spec), str(spec))
    nodes, path = split_target(what, workspace.fleet)
    if read_tree(spec) != files.original:  # positions in the fleet would be those of other lines
        raise ReconcilerError(f"{spec} was changed meanwhile; nothing is written")
    named = set(select_nodes(workspace.fleet, (nodes,), ())[0])
    selected, scope = workspace.selection
    names = [name for name in selected if name in named]
    workspace.selection = names, scope
    if not names:
        raise UsageError(f"{nodes} and --limit or --exclude have no node in common")
    seen = workspace.observation(observation)
    if observation is not None:
        workspace.frontend.say(f"values of {clock(seen.finished_at)}, from {observation}")
    with workspace.present_ledger() as ledger:
        records, acting = ledger.nodes(names), {node for _, node, *_ in ledger.unfinished()}
    excluded = unadoptable_nodes(workspace.fleet, names, path, seen.nodes, records, acting)
    rules = IgnoreRules(workspace.fleet.settings.ignore, workspace.clock.now())
    values = ObservedValues(workspace.fleet, names, path, seen.nodes, rules, excluded)
    adoption = edit_spec(values, files, WriteLevel(at))
    if adoption.written and not dry_run:
        write_files(spec, adoption.files)
    return adoption


def split_target(what: str, fleet: Fleet) -> tuple[str, str]:
    """Return the nodes, as --limit takes them, and the path, "" for all. Node names may hold dots."""
    for name in sorted(fleet.nodes, key=len, reverse=True):
        if what == name or what.startswith(f"{name}."):
            return name, what[len(name) + 1 :]
    match = _PATH.fullmatch(what)
    return (match[1], match[2]) if match else (what, "")


def unadoptable_nodes(
    fleet: Fleet, nodes: Sequence[str], path: str, seen: Mapping[str, Observed], records: Mapping[str, NodeRecord],
    acting: Collection[str],
) -> dict[str, str]:  # fmt: skip
    """Return node -> why nothing of it is adopted: another machine may have answered, or an action is under way.

    A `path` below identity means that the user says which machine it is. `acting`: nodes with an unfinished action.
    """
    found = {}
    named = path.partition(".")[0] == Concern.IDENTITY
    for node in nodes:
        if node in acting:
            found[node] = "an action is under way, or was cut short; adopt what it has when that is settled"
        elif not named and (
            why := _identity_problem(fleet.nodes[node], seen[node], records.get(node) or NodeRecord(node))
        ):
            found[node] = why
    return found


def _identity_problem(desired: Desired, seen: Observed, record: NodeRecord) -> str:
    """Return why the values may be those of another machine; "" when they are of this node."""
    system, facts = hot(seen), host(seen)
    verdict, why = identity(
        desired,
        None if isinstance(system, Missing) else system,
        None if isinstance(facts, Missing) else facts,
        record,
    )
    hint = f"; if it was exchanged, adopt {desired.node}.{Concern.IDENTITY} first" if verdict is False else ""
    return "" if verdict else f"which machine was read is not known: {why}{hint}"


def edit_spec(values: ObservedValues, files: SpecFiles, at: WriteLevel) -> Adoption:
    """Edit `files`, the spec that the fleet was loaded from, so that it wants these values.

    Raise Refused when `path` can't be adopted, or when the proof fails; nothing may be written then.
    """
    fleet, path = values.fleet, values.path
    try:
        if path:
            check_path(path)
        choice = _choose(values, _images(files))
    except NotAdoptable as problem:
        raise Refused(str(problem)) from None
    written, refused = accept(files, fleet, choice.wanted, at)
    told = (values.redaction.text(sentence) for sentence in refused)
    left = tuple(dict.fromkeys([*(f"{fold(nodes)}: {why}" for why, nodes in choice.left.items()), *told]))
    if path and left:
        hint = ", unless --exclude leaves these nodes out" if len(values.nodes) > 1 else ""
        raise Refused("; ".join(left) + f"; nothing is written{hint}")
    done = {(node, one.path) for one in written for node in one.nodes}
    items = tuple(i for i in choice.items if (i.node, _adopted_path(i)) in done)
    if written:
        _prove(values, files, done)
    return Adoption(files, items, tuple(written), left, tuple(_notes(fleet, items)))


def _adopted_path(item: DriftItem) -> str:
    return IMAGE if item.concern is Concern.IMAGE else item.path


def _choose(observed: ObservedValues, images: Mapping[tuple[str, str], str]) -> _Choice:
    choice, comparer, path = _Choice(observed.redaction), Comparer(observed.rules), observed.path
    for node in observed.nodes:
        desired = observed.fleet.nodes[node]
        if path:
            _check_known(path, {row.path for row in managed(desired.profile)} | _own(desired))
        items = [
            item
            for item in comparer.compare(desired, observed.seen[node], NodeRecord(node))
            if not path or item.path == path or item.path.startswith(f"{path}.")
        ]
        values: dict[str, Any] = {}
        # The other values of an image follow from its name and version, adopted or not.
        settled = {item.path for item in items} & set(_IMAGES)
        for item in sorted(items, key=lambda item: item.path not in _IMAGES):
            if settled and item.concern is Concern.IMAGE and (item.path not in _IMAGES or IMAGE in values):
                choice.items.append(item)
                continue
            try:
                value = adoptable(item, desired, observed.seen[node], images)
                why = observed.excluded.get(node, "")
            except NotAdoptable as problem:
                why = str(problem)
            if why:
                choice.skip(node, item, why, one=bool(path))
                continue
            values[_adopted_path(item)] = value
            choice.items.append(item)
        choice.wanted += [WantedValue(node, name, value) for name, value in values.items()]
    return choice


def _own(desired: Any) -> set[str]:
    own = {"identity.serial": desired.serial, "identity.uuid": desired.uuid, "host.hostname": desired.hostname}
    return {name for name, value in own.items() if value is not None}


def _check_known(path: str, known: set[str]) -> None:
    if not any(name == path or name.startswith(f"{path}.") for name in known):
        hint = did_you_mean(path, known)
        raise UsageError(f"the spec does not manage {path!r} of this node" + (f"; {hint}" if hint else ""))


def _images(files: SpecFiles) -> dict[tuple[str, str], str]:
    found = {}
    for name in files.yaml_names():
        for _, data in files.yaml(name).resources():
            if data.get("kind") == "GoldenImage":
                for version in data["spec"]["versions"]:
                    found[data["metadata"]["name"], version["version"]] = version["sha256"]
    return found


def _prove(values: ObservedValues, files: SpecFiles, done: set[tuple[str, str]]) -> None:
    """Raise Refused unless the edited spec is valid, settles this drift and changes nothing else."""
    after, diagnostics = check_spec(files.contents(), directory=files.directory, origin=values.fleet.source)
    if after is None:
        raise Refused(f"the spec would not be valid, so nothing is written: {diagnostics[0]}")
    adopted: dict[str, set[str]] = {}
    for node, path in done:
        adopted.setdefault(node, set()).add(path)
    against = list(objections(values.fleet, after, values.seen, adopted, values.rules))
    if against:
        raise Refused(f"the edit would change more than was asked for, so nothing is written: {'; '.join(against[:3])}")


def _notes(fleet: Fleet, items: Sequence[DriftItem]) -> Iterator[str]:
    noted = set()
    for item in items:
        if item.concern is Concern.FIRMWARE:
            component = item.path.partition(".")[2]
            found = next(one for one in fleet.nodes[item.node].profile.firmware if one.component == component)
            if found.url is not None and (item.path, found.url) not in noted:
                noted.add((item.path, found.url))
                yield f"{item.path}: its url is still that of {found.version}; name the file of the version adopted"


# --- files ---------------------------------------------------------------------------------------------------------


class _Files(Mapping[str, bytes]):
    """The plain files of a directory, by path below it. Each is read when it is first asked for.

    Lookups raise UnreadableFile for what the loader refuses, too.
    """

    def __init__(self, tree: SpecTree) -> None:
        self._tree = tree
        self._plain = {name for name, entry in tree.entries() if entry.is_file(follow_symlinks=False)}
        self._read: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> bytes:
        if name not in self._read:
            if name not in self._plain:
                raise KeyError(name)
            self._read[name] = self._tree.read(name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._plain))

    def __len__(self) -> int:
        return len(self._plain)


def read_tree(directory: Path) -> Mapping[str, bytes]:
    """Return the plain files of the spec, by path. Raise SpecError when there are more than a spec may have."""
    try:
        return _Files(SpecTree(directory, str(directory)))
    except UnreadableFile as problem:
        raise SpecError((problem.diagnostic,)) from None


def write_files(directory: Path, files: SpecFiles) -> None:
    """Write each edited file as a whole, with its mode.

    Raise ReconcilerError when a file was changed meanwhile, before anything is written, or when it can't be written.
    """
    parts: list[tuple[Path, Path]] = []
    try:
        for name, text in files.edited.items():
            path = directory / name
            if path.read_bytes() != files.original[name]:
                raise ReconcilerError(f"{path} was changed meanwhile; nothing is written")
            part = path.with_name(f".{path.name}.{os.getpid()}")
            parts.append((part, path))
            part.write_text(text, encoding="utf-8", newline="")
            part.chmod(path.stat().st_mode & 0o7777)
        for part, path in parts:
            part.replace(path)
    except OSError as error:
        raise ReconcilerError(f"{error.filename} can't be written: {error.strerror}") from error
    finally:
        for part, _ in parts:
            part.unlink(missing_ok=True)
