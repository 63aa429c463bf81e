"""Copies of models from the node that goes to those that stay: the programs that run on both.

A node that stays pulls with rsync over SSH, from the address of the other one on a network that the spec names. It
keeps what it has: nothing is overwritten, and nothing deleted. What arrived is compared file by file with the digests
of the other one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from reconciler.model.privacy import Address, PublicText


@dataclass(frozen=True, slots=True)
class DesiredSync:
    """`address`: of the node itself, on link `link`. `gbps`: line rate of that in Gbit/s; None = nobody says.

    `images`: names of container images, as the runtime of the node knows them.
    """

    paths: tuple[PublicText, ...]
    link: PublicText
    address: Address
    gbps: float | None = None
    images: tuple[PublicText, ...] = ()

    @property
    def named(self) -> str:
        return ", ".join((*self.paths, *self.images))


@dataclass(frozen=True, slots=True)
class Copied:
    """The end of a pull: how many bytes of files were sent, and how long that took."""

    size: int
    seconds: float

    def told(self, link: str, gbps: float | None) -> str:
        """Return the size and the rate in words, against the line rate where one is declared."""
        if not self.size:
            return "nothing was lacking"
        rate = self.size * 8 / 1e9 / max(self.seconds, 1e-3)
        share = f", {100 * rate / gbps:.1f} % of the {gbps:g} Gbit/s of {link}" if gbps else ""
        return f"{self.size / 1e9:.3g} GB in {self.seconds:.1f}s: {rate:.3g} Gbit/s{share}"


_COPIED: Final = re.compile(r"copied (?P<size>\d+) bytes in (?P<milliseconds>\d+) ms")


def read_copied(text: str) -> Copied | None:
    """Return what PULL said at its end; None if it did not."""
    found = _COPIED.search(text)
    return None if found is None else Copied(int(found["size"]), int(found["milliseconds"]) / 1000)


# `sh -c PULL sh ADDRESS PATH...` on the node that stays. rsync goes on with a file that was cut (--partial-dir).
# With a slash it copies what is in a directory, also in one that is a symbolic link here or there.
PULL: Final = """\
set -eu
export LC_ALL=C
address=$1
shift
case $address in *:*) address="[$address]" ;; esac
command -v rsync >/dev/null || { echo "rsync is not installed: the image must bring it" >&2; exit 1; }
told=$(mktemp)
trap 'rm -f "$told" "$told.list"' EXIT
trap 'exit 1' HUP INT TERM
began=$(date +%s%N)
export RSYNC_RSH='ssh -o BatchMode=yes -o ConnectTimeout=15'
for path; do
  end= into=$(dirname "$path")
  if rsync --list-only --timeout=120 "root@$address:$path/" > "$told.list" 2>&1; then end=/ into=$path; fi
  mkdir -p "$into"
  rsync --archive --hard-links --ignore-existing --partial-dir=.rsync-partial --timeout=120 \
    --stats --no-human-readable "root@$address:$path$end" "$into/" >> "$told"
  sync -f "$into" # or what is there under its name may be empty after a loss of power, and is never sent again
done
size=$(sed -n 's/^Total transferred file size: \\([0-9]*\\) bytes$/\\1/p' "$told" | paste -sd+ - | tr -d '\\n')
echo "copied $(($size)) bytes in $((($(date +%s%N) - began) / 1000000)) ms"
"""

# `sh -c DIGESTS sh PATH...` on the node that goes: a line of sha256sum for each file.
DIGESTS: Final = """\
set -eu
export LC_ALL=C
for path; do [ -e "$path" ] || { echo "$path is not there: mount it, or take it out of sync" >&2; exit 1; }; done
find -H "$@" -name .rsync-partial -prune -o -type f -print0 | sort -z | xargs -0 -r sha256sum --
"""

COMPARE: Final = ("sha256sum", "--check", "--quiet", "--strict", "-")  # with the lines of DIGESTS on its stdin
