"""Images of containers that a node hands to others: the programs that list, save and load them on hosts.

The runtime is the first of these that has all of them: the containerd of K3s, or of the host, in the namespace of
Kubernetes (`ctr`), or Docker. An image is the same where its digest is: with containerd that of its manifest. Docker's
IDs are of the configuration or of the manifest, as its store is, so ours is of what it runs and of its layers. They
travel as archives in HOME, one for each name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HOME: Final = "/var/lib/reconciler/images"
_LINE: Final = re.compile(r"(?P<digest>sha256:[0-9a-f]{64}) (?P<name>\S+) (?P<archive>/\S+)")


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """`archive`: path of the file that it is saved to."""

    digest: str
    name: str
    archive: str

    def __str__(self) -> str:
        return f"{self.digest} {self.name} {self.archive}"


@dataclass(frozen=True, slots=True)
class ListedImages:
    """`runtime`: containerd or docker."""

    runtime: str
    images: tuple[ContainerImage, ...]


def read_listed(text: str) -> ListedImages | None:
    """Return what LIST printed: the runtime, and a line for each image. None if that is something else."""
    runtime, *lines = text.splitlines() or [""]
    found = [_LINE.fullmatch(line) for line in lines]
    if runtime not in ("containerd", "docker") or not lines or not all(found):
        return None
    return ListedImages(runtime, tuple(ContainerImage(*one.group("digest", "name", "archive")) for one in found if one))


def archive_sizes(text: str) -> Mapping[str, int]:
    """Return the bytes of each archive that EXPORT printed, by its path."""
    rows = (line.partition(" ") for line in text.splitlines())
    return {path: int(size) for size, _, path in rows if size.isdecimal()}


# `digest_of NAME` prints the digest of an image of `runtime`; nothing where it is not there as a whole. Layers that
# containerd threw away once they were unpacked (discard_unpacked_layers) can't be saved, and are not needed to run.
_COMMON: Final = f"""\
set -eu
export LC_ALL=C
home={HOME}
socket=/run/k3s/containerd/containerd.sock
[ -S "$socket" ] || socket=/run/containerd/containerd.sock
containerd() {{
  if command -v ctr >/dev/null; then set -- ctr "$@"; else set -- k3s ctr "$@"; fi
  CONTAINERD_ADDRESS="$socket" CONTAINERD_NAMESPACE=k8s.io "$@"
}}
digest_of() {{
  case $runtime in
    containerd) containerd images check "name==\\"$1\\"" | awk -v unpacked="${{2:-}}" \\
      'NR > 1 && ($4 == "complete" || (unpacked != "" && $NF == "true")) {{ print $3 }}' ;;
    docker)
      what='{{{{json .RootFS.Layers}}}} {{{{json .Config.Entrypoint}}}} {{{{json .Config.Cmd}}}}'
      what="$what {{{{json .Config.Env}}}}"
      said=$(docker image inspect --format "$what" -- "$1" 2>/dev/null) || return 0
      printf 'sha256:%s\n' "$(printf %s "$said" | sha256sum | cut -c1-64)" ;;
  esac
}}
load() {{
  case $runtime in
    containerd) containerd images import "$1" >/dev/null ;;
    docker) docker load --quiet --input "$1" >/dev/null ;;
  esac < /dev/null
}}
left() {{ echo "$((100 * $(df --output=avail -k "$home" | tail -1) / $(df --output=size -k "$home" | tail -1)))"; }}
archive_of() {{ echo "$home/$(printf '%s %s' "$1" "$2" | sha256sum | cut -c1-64).tar"; }}
"""

# `sh -c LIST sh NAME...` on the node that has them: the runtime, and a line "DIGEST NAME ARCHIVE" for each.
LIST: Final = (
    _COMMON
    + """\
lacking=
for runtime in containerd docker; do
  if [ "$runtime" = containerd ]; then [ -S "$socket" ] || continue
  else command -v docker >/dev/null || continue; fi
  listed= missing=
  for name; do
    case $runtime-$name in
      docker-*@*) digest= ;; # docker save loses the name of an image that is named by its digest
      *) digest=$(digest_of "$name") ;;
    esac
    if [ -z "$digest" ]; then missing="$missing $name"; continue; fi
    listed="$listed
$digest $name $(archive_of "$digest" "$name")"
  done
  if [ -z "$missing" ]; then echo "$runtime$listed"; exit 0; fi
  lacking="$lacking; $runtime has not:$missing"
done
echo "no runtime has all images whole${lacking:-: neither containerd nor Docker runs}" >&2
exit 1
"""
)

# `sh -c LACKING sh RUNTIME` with lines of LIST on stdin: prints those of images that are not here. One that is here
# under its name with another digest is named, and is an error: nothing of a node that serves is replaced. Of one that
# came here since a copy broke off, what was copied goes: no other program would ever look at it again.
LACKING: Final = (
    _COMMON
    + """\
runtime=$1
while read -r digest name archive; do
  here=$(digest_of "$name" unpacked)
  if [ -z "$here" ]; then echo "$digest $name $archive"
  elif [ "$here" != "$digest" ]; then
    echo "$name is $here here, and $digest there: give versions names of their own, or remove it here" >&2; exit 1
  else rm -f "$archive" "$archive.part" "$home/.rsync-partial/${archive##*/}"; fi
done
rmdir "$home/.rsync-partial" "$home" 2>/dev/null || true
"""
)

# `sh -c EXPORT sh RUNTIME` with lines of LIST on stdin, on the node that has them: a line "SIZE ARCHIVE" for each. An
# archive that is there is whole. HOME/list has what LIST said, for RELOAD. The kubelet throws pods out where less than
# a tenth of a disk is left (nodefs.available).
EXPORT: Final = (
    _COMMON
    + """\
runtime=$1
mkdir -p "$home" && chmod 700 "$home"
echo "$runtime" > "$home/list"
while read -r digest name archive; do
  echo "$digest $name $archive" >> "$home/list"
  if [ ! -e "$archive" ]; then
    case $runtime in
      containerd) containerd images export "$archive.part" "$name" >/dev/null ;;
      docker) docker save --output "$archive.part" -- "$name" ;;
    esac < /dev/null
    tar -tf "$archive.part" >/dev/null
    if [ "$(left)" -lt 10 ]; then
      rm -rf "$home"
      echo "with the archive of $name less than 10 % of the disk of $home would be left" >&2; exit 1
    fi
    sync "$archive.part"
    mv "$archive.part" "$archive"
  fi
  echo "$(stat -c %s "$archive") $archive"
done
sync "$home/list"
"""
)

# `sh -c ROOM sh BYTES` where archives of so many are to be copied to, and loaded: twice that has to be free, and a
# fifth of the disk beside it.
ROOM: Final = (
    _COMMON
    + """\
mkdir -p "$home" && chmod 700 "$home"
free=$(df --output=avail -k "$home" | tail -1) size=$(df --output=size -k "$home" | tail -1)
[ "$((free - 2 * $1 / 1024))" -ge "$((size / 5))" ] || {
  echo "the disk of $home has no room for $(($1 / 1048576)) MiB of archives and as much of images" >&2; exit 1
}
"""
)

# `sh -c LOAD sh RUNTIME` with lines of LIST on stdin, where their archives were copied to. All of these go once the
# images are here. One that can't be loaded goes, too: it may be damaged, and is copied anew.
LOAD: Final = (
    _COMMON
    + """\
runtime=$1
while read -r digest name archive; do
  if [ -z "$(digest_of "$name" unpacked)" ]; then
    load "$archive" || { rm -f "$archive"; echo "$name can't be loaded" >&2; exit 1; }
  fi
  here=$(digest_of "$name" unpacked)
  [ "$here" = "$digest" ] || {
    echo "$name is ${here:-not there} after it was loaded, and $digest there" >&2; exit 1
  }
done
rm -rf "$home"
"""
)

# `sh -c RELOAD` on a disk that was written anew, to which HOME was restored: a line for each image that can't be
# loaded, whose archive stays; the list goes, so that none is tried twice. The node's data is back all the same, and its
# runtime may still pull the image. One that is there already came with the new system, and stays. A runtime may need
# some time after the boot.
RELOAD: Final = (
    _COMMON
    + """\
[ -e "$home/list" ] || exit 0
if ! read -r runtime < "$home/list"; then # the host lost power before it was on the disk
  echo "all: $home/list is empty"; rm -f "$home/list"; exit 0
fi
for _ in $(seq 60); do
  case $runtime in
    containerd) [ ! -S "$socket" ] || break ;;
    docker) ! docker version >/dev/null 2>&1 || break ;;
  esac
  sleep 1
  [ ! -S /run/k3s/containerd/containerd.sock ] || socket=/run/k3s/containerd/containerd.sock
done
tail -n +2 "$home/list" > "$home/lines"
failed=
while read -r digest name archive; do
  [ -e "$archive" ] || continue
  if [ -z "$(digest_of "$name" unpacked)" ]; then
    if ! why=$(load "$archive" 2>&1); then :
    elif here=$(digest_of "$name" unpacked); [ "$here" = "$digest" ]; then why=
    else why="it is ${here:-not there} after it was loaded, not $digest"; fi
    if [ -n "$why" ]; then
      failed=yes
      printf '%s: %s\\n' "$name" "$(printf %s "$why" | tr '\\n' ' ' | tail -c 150)"
      continue
    fi
  fi
  rm -f "$archive"
done < "$home/lines"
if [ -n "$failed" ]; then rm -f "$home/list" "$home/lines"; else rm -rf "$home"; fi
"""
)

FORGET: Final = ("rm", "-rf", HOME)  # archives that all have loaded
