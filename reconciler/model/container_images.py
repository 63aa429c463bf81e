"""Images of containers that a node hands to others: the programs that list, save and load them on hosts.

The runtime is the first of these that has all of them: the containerd of K3s, or of the host, in the namespace of
Kubernetes (`ctr`), or Docker. It knows an image by the digest of its manifest (containerd) or of its configuration
(Docker), under which it takes no other content. They travel as archives in HOME, one for each name.
"""

from __future__ import annotations

import re
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
    docker) docker image inspect --format '{{{{.Id}}}}' -- "$1" 2>/dev/null || true ;;
  esac
}}
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
    digest=$(digest_of "$name")
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
# under its name with another digest is named, and is an error: nothing of a node that serves is replaced.
LACKING: Final = (
    _COMMON
    + """\
runtime=$1
while read -r digest name archive; do
  here=$(digest_of "$name" unpacked)
  if [ -z "$here" ]; then echo "$digest $name $archive"
  elif [ "$here" != "$digest" ]; then
    echo "$name is $here here, and $digest there: give versions names of their own, or remove it here" >&2; exit 1
  fi
done
"""
)

# `sh -c EXPORT sh RUNTIME` with lines of LIST on stdin, on the node that has them. An archive that is there is whole.
# HOME/list has what LIST said, for RELOAD.
EXPORT: Final = (
    _COMMON
    + """\
runtime=$1
mkdir -p "$home" && chmod 700 "$home"
echo "$runtime" > "$home/list"
while read -r digest name archive; do
  echo "$digest $name $archive" >> "$home/list"
  [ ! -e "$archive" ] || continue
  case $runtime in
    containerd) containerd images export "$archive.part" "$name" >/dev/null ;;
    docker) docker save --output "$archive.part" -- "$name" ;;
  esac < /dev/null
  sync "$archive.part"
  mv "$archive.part" "$archive"
done
"""
)

# `sh -c LOAD sh RUNTIME` with lines of LIST on stdin, where their archives were copied to. An archive goes once its
# image is here.
LOAD: Final = (
    _COMMON
    + """\
runtime=$1
while read -r digest name archive; do
  if [ -z "$(digest_of "$name" unpacked)" ]; then
    case $runtime in
      containerd) containerd images import "$archive" >/dev/null ;;
      docker) docker load --quiet --input "$archive" >/dev/null ;;
    esac < /dev/null
  fi
  here=$(digest_of "$name" unpacked)
  [ "$here" = "$digest" ] || { echo "$name is ${here:-not there} after it was loaded, and $digest there" >&2; exit 1; }
  rm -f "$archive"
done
"""
)

# `sh -c RELOAD sh FOLDER` on a disk that was written anew, to which HOME was restored. An image that is there already
# came with the new system, and stays. Where the containerd is that of K3s, which starts later, it loads what is in
# FOLDER by itself (docs.k3s.io, "Air-Gap Install", manually deploy images).
RELOAD: Final = (
    _COMMON
    + """\
folder=${1:-}
[ -e "$home/list" ] || exit 0
{
  read -r runtime
  while read -r digest name archive; do
    [ -e "$archive" ] || continue
    if [ "$runtime" = containerd ] && [ -n "$folder" ] && [ ! -S /run/k3s/containerd/containerd.sock ]; then
      mkdir -p "$folder" && mv "$archive" "$folder/" && continue
    fi
    if [ -z "$(digest_of "$name" unpacked)" ]; then
      case $runtime in
        containerd) containerd images import "$archive" >/dev/null ;;
        docker) docker load --quiet --input "$archive" >/dev/null ;;
      esac < /dev/null
      here=$(digest_of "$name" unpacked)
      [ "$here" = "$digest" ] || { echo "$name is ${here:-not there} after it was loaded, not $digest" >&2; exit 1; }
    fi
    rm -f "$archive"
  done
} < "$home/list"
rm -rf "$home"
"""
)

FORGET: Final = ("rm", "-rf", HOME)  # archives that all have loaded
