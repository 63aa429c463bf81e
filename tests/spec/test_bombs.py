"""Small specs that expand without end, in a commit and on a disk: refused, within bounded time and memory."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from reconciler.app.adopt import read_tree
from reconciler.app.node_selection import select_nodes
from reconciler.drivers.git import GitError, read_revision
from reconciler.drivers.spec_directory import SpecDirectory
from reconciler.model.errors import SpecError, UsageError
from reconciler.model.spec_feed import Trouble
from reconciler.spec import check_spec, load, node_source, tree
from reconciler.spec.edit.files import SpecFiles
from reconciler.spec.load import MAX_VALUES_IN_ALL
from reconciler.spec.ranges import MAX_NODES
from reconciler.spec.tree import MAX_ENTRIES, MAX_FOLDERS
from reconciler.strict_yaml.parse import MAX_VALUES
from tests.spec.example import changed, told
from tests.spec.example import load as load_example

MIB = 1024 * 1024
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program")


class Plumbing:
    """A repository whose objects are written one by one: trees that no work tree could hold."""

    def __init__(self, top: Path) -> None:
        self.top = top
        top.mkdir()
        self("init", "-q", "-b", "main")

    def __call__(self, *arguments: str, stdin: bytes = b"") -> str:
        who = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull} | who
        done = subprocess.run(
            ["git", "-C", str(self.top), *arguments], input=stdin, env=environment, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    def blob(self, data: bytes) -> str:
        return self("hash-object", "-w", "--stdin", stdin=data)

    def tree(self, entries: list[str]) -> str:
        return self("mktree", "-z", stdin="".join(f"{entry}\0" for entry in entries).encode())

    def files(self, files: dict[str, bytes]) -> list[str]:
        return [f"100644 blob {self.blob(data)}\t{name}" for name, data in files.items() if "/" not in name]

    def commit(self, tree: str) -> str:
        commit = self("commit-tree", tree, "-m", "x")
        self("update-ref", "refs/heads/main", commit)
        return commit


@pytest.fixture
def repository(tmp_path: Path) -> Plumbing:
    return Plumbing(tmp_path / "repository")


def validate(repository: Plumbing, memory: int = 512 * MIB) -> tuple[int, str]:
    """What `validate --rev` of the whole repository ends with, in a process that may use so much memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    done = subprocess.run(
        [sys.executable, "-m", "reconciler", "validate", str(repository.top), "--rev", "main"],
        capture_output=True, text=True, timeout=120, preexec_fn=limit,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).replace(f"{repository.top}/", "")


def bomb(repository: Plumbing, levels: int, leaf: str) -> str:
    """A tree whose entries are ten times the tree below it."""
    tree = repository.tree([leaf] if leaf else [])
    for _ in range(levels):
        tree = repository.tree([f"040000 tree {tree}\t{number}" for number in range(10)])
    return tree


@needs_git
@pytest.mark.tool
@pytest.mark.parametrize("suffix", ["bin", "yaml", "csv"])
def test_many_names_for_one_large_blob(repository: Plumbing, suffix: str) -> None:
    blob = repository.blob(b"a: " + b"x" * 16 * MIB)
    repository.commit(repository.tree([f"100644 blob {blob}\t{number:03d}.{suffix}" for number in range(300)]))
    code, said = validate(repository)
    assert code == 3, said
    if suffix == "yaml":
        assert "000.yaml: larger than 1 MiB" in said
        assert "300 problems" in said
    else:
        assert "the spec is empty" in said


@needs_git
@pytest.mark.tool
def test_pools_that_share_one_large_inventory(repository: Plumbing) -> None:
    """Each may be read; all together may not."""
    inventory = b"name,host\n" + b" " * 15 * MIB
    pools = [
        b"apiVersion: reconciler.dev/v1alpha1\nkind: NodePool\nmetadata: {name: p%d}\nspec: {inventory: %d.csv}\n"
        % (number, number)
        for number in range(30)
    ]
    blob = repository.blob(inventory)
    entries = [f"100644 blob {blob}\t{number}.csv" for number in range(30)]
    entries += repository.files({"pools.yaml": b"---\n".join(pools)})
    repository.commit(repository.tree(entries))
    code, said = validate(repository)
    assert code == 3, said
    assert "with this file the spec is larger than 64 MiB" in said


@needs_git
@pytest.mark.tool
@pytest.mark.parametrize("leaf", ["", "file"])
def test_a_tree_bomb(repository: Plumbing, leaf: str) -> None:
    blob = repository.blob(b"a: 1\n") if leaf else ""
    repository.commit(bomb(repository, 12, f"100644 blob {blob}\tx.yaml" if leaf else ""))
    code, said = validate(repository)
    assert code == 3, said
    assert f"there are more than {MAX_ENTRIES} files and folders (keep the spec in a folder of its own" in said
    with pytest.raises(SpecError, match="more than"):
        read_revision(repository.top, "main")


@needs_git
@pytest.mark.tool
def test_folders_far_below_each_other(repository: Plumbing) -> None:
    tree = repository.tree([])
    for _ in range(MAX_FOLDERS + 2):
        tree = repository.tree([f"040000 tree {tree}\td"])
    repository.commit(tree)
    with pytest.raises(SpecError, match=f"below more than {MAX_FOLDERS} folders"):
        read_revision(repository.top, "main")


@needs_git
@pytest.mark.tool
def test_what_lies_around_the_spec_is_not_read(repository: Plumbing, monkeypatch: pytest.MonkeyPatch) -> None:
    """One blob of two names is read once, and what the spec does not name is not."""
    files = changed()
    blobs = [f"100644 blob {repository.blob(files[name])}\t{name}" for name in files if "/" not in name]
    blobs.append(f"100644 blob {repository.blob(b'x' * 1000)}\tnotes.txt")
    pki = [f"100644 blob {repository.blob(files[name])}\t{name[4:]}" for name in files if name.startswith("pki/")]
    repository.commit(repository.tree([*blobs, f"040000 tree {repository.tree(pki)}\tpki"]))
    found, source = read_revision(repository.top, "main")
    read: list[str] = []
    from git.db import GitCmdObjectDB

    stream = GitCmdObjectDB.stream

    def counting(self: GitCmdObjectDB, binsha: bytes) -> object:
        read.append(binsha.hex())
        return stream(self, binsha)

    monkeypatch.setattr(GitCmdObjectDB, "stream", counting)
    fleet, problems = check_spec(found, directory="", origin=source)
    assert fleet is not None, problems
    assert len(read) == len(set(read)) == len(files)
    assert "notes.txt" in found
    assert found["notes.txt"] == b"x" * 1000


@needs_git
@pytest.mark.tool
def test_an_object_that_the_repository_lacks_is_an_error_of_git(repository: Plumbing) -> None:
    commit = repository.commit(repository.tree(repository.files({"a.yaml": b"a: 1\n"})))
    blob = repository("rev-parse", f"{commit}:a.yaml")
    (repository.top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    files, _ = read_revision(repository.top, "main")
    with pytest.raises(GitError, match=r"can't read .*a\.yaml .* from git"):
        files["a.yaml"]


@needs_git
@pytest.mark.tool
def test_an_entry_of_no_known_mode_is_a_spec_error(repository: Plumbing) -> None:
    blob = bytes.fromhex(repository.blob(b"a: 1\n"))
    tree = repository("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=b"70000 a.yaml\0" + blob)
    repository.commit(tree)
    with pytest.raises(SpecError, match="git can't list this folder"):
        read_revision(repository.top, "main")


# --- on a disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    for name, data in changed().items():
        path = tmp_path / "spec" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "spec"


@pytest.mark.parametrize("name", ["pipe.yaml", "pki/bmc-ca.pem"])
def test_a_pipe_does_not_hang_a_read(spec: Path, name: str) -> None:
    (spec / name).unlink(missing_ok=True)
    os.mkfifo(spec / name)
    expected = [f"{name}: not a plain file (a spec holds plain files only)"]
    if name == "pki/bmc-ca.pem":
        expected = ["fleet.yaml:8:15 spec.redfish.tls.ca: 'pki/bmc-ca.pem': not a plain file"]
    assert told(spec) == expected


def test_a_folder_that_leads_back_to_itself_is_a_link(spec: Path) -> None:
    (spec / "pki" / "loop").symlink_to(spec)
    assert told(spec) == ["pki/loop: a symbolic link (a spec holds plain files only)"]


def test_too_many_files(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_ENTRIES", 50)
    for number in range(60):
        (spec / f"{number}.txt").touch()
    (found,) = told(spec)
    assert "there are more than 50 files and folders (keep the spec in a folder of its own, and give that)" in found
    with pytest.raises(SpecError, match="more than 50"):
        read_tree(spec)


def test_folders_that_are_too_deep(spec: Path) -> None:
    deep = spec.joinpath(*["d"] * (MAX_FOLDERS + 2))
    deep.mkdir(parents=True)
    (found,) = told(spec)
    assert f"below more than {MAX_FOLDERS} folders" in found


def test_files_that_are_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    comment = b"# " + b"x" * 1024 * 1000 + b"\n"
    files = {**changed(), **{f"z{number:02d}.yaml": comment for number in range(60)}}
    found = told(files)
    assert found[-1] == (
        "z08.yaml: with this file the spec has more than 8 MiB of YAML "
        "(list nodes in CSV files, and keep other YAML elsewhere)"
    )
    assert not any(line.startswith("z09") for line in found)


def test_aliases_of_many_files_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 KB each, of 160,000 values."""
    monkeypatch.setattr(load, "MAX_VALUES_IN_ALL", 50_000)
    lines = f"a: &a [{','.join('x' * 200)}]\nb: [{','.join(['*a'] * 100)}]\n".encode()
    (found,) = [line for line in told({f"{number}.yaml": lines for number in range(9)}) if "with this file" in line]
    assert found.startswith("2.yaml: with this file the spec has more than")
    assert MAX_VALUES_IN_ALL >= MAX_VALUES


def test_a_directory_that_is_followed_is_bounded_too(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = SpecDirectory(spec)
    assert asyncio.run(followed.pull()).trouble is None
    fleet = followed.fleet
    monkeypatch.setattr(tree, "MAX_ENTRIES", 50)
    hidden = spec / ".cache"
    hidden.mkdir()
    for number in range(60):
        (hidden / f"{number}.yaml").touch()  # nobody looks into it
    for _ in range(2):
        assert asyncio.run(followed.pull()).trouble is None
    for number in range(60):
        (spec / f"{number}.txt").touch()
    for _ in range(2):
        pulled = asyncio.run(followed.pull())
    assert pulled.trouble is Trouble.INVALID
    assert "more than 50 files and folders" in pulled.detail
    assert followed.fleet is fleet


def test_adoption_reads_what_the_spec_names_alone(spec: Path) -> None:
    (spec / "dump.bin").write_bytes(b"x" * 17 * MIB)
    os.mkfifo(spec / "pipe")
    files = SpecFiles(read_tree(spec), str(spec))
    fleet, problems = check_spec(files.contents(), directory=str(spec))
    assert fleet is not None, problems
    assert {*files.contents()} == {*changed(), "dump.bin"}
    with pytest.raises(KeyError):
        files.original["pipe"]


# --- nodes ---------------------------------------------------------------------------------------------------------


def pool_of(name: str, entries: str) -> bytes:
    head = f"apiVersion: reconciler.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  nodes:\n"
    return (head + entries).encode()


def test_ranges_of_all_pools_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5 KB: 200,000 nodes, which would take 100 MB, where a tenth of the real limit holds."""
    monkeypatch.setattr(node_source, "MAX_NODES", MAX_NODES // 10)
    entry = "  - {{name: '{0}-[1-9999]', host: '{0}-[1-9999].example.com'}}\n"
    files = changed()
    for number in range(5):
        name = f"p{number}"
        files[f"{name}.yaml"] = pool_of(name, "".join(entry.format(f"{name}{letter}") for letter in "abcd"))
    tracemalloc.start()
    found = told(files)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [  # after two times 9,999
        f"p0.yaml:8:12 spec.nodes[2].name: with these 9999 nodes the spec has more than {MAX_NODES // 10} "
        "(a fleet this large needs several specs)"
    ]
    assert most < 30 * MIB


def test_rows_of_inventories_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_source, "MAX_NODES", 11)
    files = changed()
    files["more.yaml"] = pool_of("more", "  - {name: 'm[1-10]', host: 'm[1-10]'}\n  inventory: more.csv\n")
    files["more.csv"] = b"name,host\n\nn1,n1\nn2,n2\n"
    assert told(files) == [
        "more.csv:4:1: with this node the spec has more than 11 (a fleet this large needs several specs)"
    ]


@pytest.mark.parametrize("column", ["bmc", "host", "serial", "hostname"])
def test_no_range_is_expanded_that_does_not_fit_the_names(column: str) -> None:
    """However many entries have one: these would be two hundred million texts."""
    text = {"bmc": "https://b[1-200000]", "serial": "S[1-200000]"}.get(column, "h[1-200000]")
    host = "" if column == "host" else "host: h, "
    for name in ("n{}", "n{}[2-1]"):
        entries = "".join(f"  - {{name: '{name.format(at)}', {host}{column}: '{text}'}}\n" for at in range(1000))
        found = told(changed() | {"more.yaml": pool_of("more", entries)})
        assert len(found) >= 1000
        assert "200000 values for 1 name" in found[0] or "counts from 2 down to 1" in found[0]


def test_long_names_in_ranges_take_no_memory() -> None:
    """A megabyte, a hundred thousand times."""
    entry = f"  - {{name: '{'x' * 10_000}[1-100000]', host: 'h[1-100000]'}}\n"
    (found,) = told(changed() | {"more.yaml": pool_of("more", entry)})
    assert found.startswith("more.yaml:6:12 spec.nodes[0].name: 'xxx")
    assert found.endswith("has more than 300 characters around its range")


@pytest.mark.parametrize("where", ["header", "row"])
def test_a_line_of_an_inventory_is_bounded(where: str) -> None:
    head = b"name,host" + b"," * (16 * MIB - 100) if where == "header" else b"name,host"
    row = b"n1,n1" + b"," * (16 * MIB - 100) if where == "row" else b"n1,n1"
    line = 1 if where == "header" else 2
    assert told(changed() | {"nodes.csv": head + b"\n" + row}) == [
        f"nodes.csv:{line}:1: a line of more than 8192 characters"
    ]


def test_empty_lines_of_an_inventory_take_no_memory() -> None:
    files = changed()
    files["nodes.csv"] += b"\n" * 3 * MIB
    tracemalloc.start()
    assert told(files) == []
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * MIB


def test_an_expression_of_the_command_line_is_bounded() -> None:
    with pytest.raises(UsageError, match=f"names more than {MAX_NODES} nodes"):
        select_nodes(load_example(), ("gpu-a[1-999999999]",), ())
