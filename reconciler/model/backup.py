"""Backups of a node's own data before its disk is written: what the spec declares, and the programs that run on hosts.

restic saves and restores (restic.readthedocs.io). What it saved is read back from the repository and compared, file by
file, with what the host has: only that is evidence, and its digest is kept in the ledger.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.model.container_images import HOME
from reconciler.model.privacy import FreeText, PublicText, Unpublished

_SAVED: Final = re.compile(
    r"saved as (?P<snapshot>[0-9a-f]{8,64}): (?P<files>\d+) files, manifest (?P<manifest>[0-9a-f]{64})"
    r"(?:, as declared by (?P<declared>[0-9a-f]{16}))?"
)
_SERVER: Final = re.compile(
    r"(?:rest:https?|s3:https?|sftp)(?:://|:)(?:[^/@]*@)?(?P<host>\[[^\]]+\]|[^/:\s]+)(?P<port>:\d+)?"
)


@dataclass(frozen=True, slots=True)
class DesiredBackup:
    """`repository`: of restic. `environment`: variable of restic -> name of the secret that it is set to.

    `images`: names of container images, as the runtime of the node knows them.
    """

    paths: tuple[PublicText, ...]
    repository: Unpublished[FreeText]
    environment: Mapping[PublicText, PublicText]
    images: tuple[PublicText, ...] = ()

    @property
    def digest(self) -> str:
        """Tell what is saved, and where: a backup of fewer paths is no evidence for more."""
        images = ("images", *sorted(self.images)) if self.images else ()
        return hashlib.sha256("\0".join((self.repository, *sorted(self.paths), *images)).encode()).hexdigest()[:16]

    @property
    def saved_paths(self) -> tuple[str, ...]:
        """Return what restic saves: images are saved to archives first."""
        return (*self.paths, HOME) if self.images else self.paths

    @property
    def server(self) -> str | None:
        """The host, with its port if there is one, that the host's restic talks to; None: a directory of the host."""
        found = _SERVER.match(self.repository)
        return None if found is None else found["host"] + (found["port"] or "")


@dataclass(frozen=True, slots=True)
class Saved:
    """The evidence of a backup: restic's snapshot, and the SHA-256 of the list of all files with their digests."""

    snapshot: str
    files: int
    manifest: str
    declared: str = ""  # digest of the declaration; "" = not said

    def __str__(self) -> str:
        told = f"saved as {self.snapshot}: {self.files} files, manifest {self.manifest}"
        return f"{told}, as declared by {self.declared}" if self.declared else told


def read_saved(detail: str) -> Saved | None:
    """Return the evidence that the detail of an attempt tells of; None if it tells of none."""
    found = _SAVED.search(detail)
    if found is None:
        return None
    return Saved(found["snapshot"], int(found["files"]), found["manifest"], found["declared"] or "")


# Secrets come on stdin, a line NAME=VALUE each: no argument has one, and no file. `digests` lists regular files of a
# tar archive: digest, mode, owner, name (GNU tar, "Writing to an External Program"). Where a producer fails, the lists
# of both sides are not compared.
_COMMON: Final = """\
set -eu
export LC_ALL=C
while IFS= read -r line; do export "$line"; done
export RESTIC_REPOSITORY="$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
command -v restic >/dev/null || { echo "restic is not installed: the image must bring it" >&2; exit 1; }
line_of='printf "%s %s %s:%s %s\\n" "$(sha256sum | cut -c1-64)" "$TAR_MODE" "$TAR_UID" "$TAR_GID" "${TAR_FILENAME#/}"'
digests() { tar -x --to-command="$line_of" -f - > "$1.unsorted"; sort "$1.unsorted" > "$1"; }
of_repository() {
  { restic --quiet dump --archive tar "$1" / || touch "$work/failed"; } | digests "$2" || touch "$work/failed"
  [ ! -e "$work/failed" ] || { echo "snapshot $1 can't be read from the repository" >&2; exit 1; }
}
of_host() {
  list=$1; shift
  for path; do shift; set -- "$@" "${path#/}"; done
  { tar -C / --hard-dereference -cf - "$@" || touch "$work/failed"; } | digests "$list"
  [ ! -e "$work/failed" ] || { echo "files of the host can't be read, or change" >&2; exit 1; }
}
digest() { sha256sum "$1" | cut -c1-64; }
"""

SAVE: Final = (
    _COMMON
    + """\
node=$2
shift 2
for path; do [ -e "$path" ] || { echo "$path is not there: mount it, or take it out of backup" >&2; exit 1; }; done
restic --quiet cat config >/dev/null || {
  echo "no repository can be opened: make it once with restic init" >&2; exit 1
}
restic backup --json --host "$node" --tag reconciler "$@" > "$work/told"
snapshot=$(sed -n 's/.*"snapshot_id":"\\([0-9a-f]*\\)".*/\\1/p' "$work/told" | tail -1)
[ -n "$snapshot" ] || { echo "restic told of no snapshot" >&2; exit 1; }
of_repository "$snapshot" "$work/saved"
of_host "$work/here" "$@"
cmp -s "$work/saved" "$work/here" || {
  echo "what the repository holds differs from the host: files changed meanwhile" >&2; exit 1
}
echo "saved as $snapshot: $(wc -l < "$work/saved" | tr -d ' ') files, manifest $(digest "$work/saved")"
"""
)

# restic 0.14 puts no link and no FIFO where one is already, as an earlier try has left them: they go first. A line of
# its list is mode, owner, group, size, date, time, path, and of a link " -> " and where it points.
NOT_IN_REPOSITORY: Final = 4  # exit status of RESTORE: the repository holds something else than what was saved
RESTORE: Final = (
    _COMMON
    + f"""\
snapshot=$2 manifest=$3
shift 3
of_repository "$snapshot" "$work/saved"
[ "$(digest "$work/saved")" = "$manifest" ] || {{
  echo "the repository no longer holds what was saved" >&2; exit {NOT_IN_REPOSITORY}
}}
restic --quiet ls --long "$snapshot" > "$work/list"
sed -n '/^[^-d]/s|^[^/]* /|/|p' "$work/list" | sed 's| -> .*||' | while IFS= read -r path; do
  if [ -h "$path" ] || {{ [ -e "$path" ] && [ ! -f "$path" ] && [ ! -d "$path" ]; }}; then rm -f "$path"; fi
done
restic --quiet restore "$snapshot" --target / >/dev/null
of_host "$work/here" "$@"
comm -23 "$work/saved" "$work/here" > "$work/lacking"
[ ! -s "$work/lacking" ] || {{
  echo "restored, and different: $(head -1 "$work/lacking" | cut -d' ' -f4-)" >&2; exit 1
}}
sync
echo restored
"""
)
