"""Scripts that a tool needs around it on the node, which take away what they made however the tool ends."""

from __future__ import annotations

SCRATCH = "reconciler-gate"
# Runs its words again and again, as what serves one client and ends. Ends itself where they fail many times on end.
AGAIN = 'n=0; while [ $n -lt 20 ]; do "$@" >/dev/null && n=0 || { n=$((n+1)); sleep 0.2; }; done'
_BEGIN = f"""t="${{TMPDIR:-/tmp}}/{SCRATCH}"; rm -rf "$t".??????; d=$(mktemp -d "$t.XXXXXX") || exit 73
p=; trap 'trap "" HUP INT TERM; [ -z "$p" ] || {{ kill "$p"; wait "$p"; }} 2>/dev/null; rm -rf "$d"' EXIT
trap 'exit 143' HUP INT TERM; cd "$d" || exit 73
"""


def in_scratch(script: str, *words: str) -> tuple[str, ...]:
    """Return a command that runs a script in a directory of its own, with `words` as $1 and so on.

    The process whose number the script leaves in $p goes when it ends, and then the directory, in which that process
    may write until then. What a script that was killed with SIGKILL has left goes when the next one begins.
    """
    return ("env", "LC_ALL=C", "sh", "-c", _BEGIN + script, "sh", *words)
