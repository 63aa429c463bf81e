"""The facts program: one POSIX sh program on the stdin of `sh -s`, every fact under its own timeout, answers framed.

The program starts with a comment that names its protocol and a nonce, and has one line per fact. The answer is

    RECONCILER-FACTS 2 <nonce>
    fact <name> <exit status> <stdout bytes> <stderr bytes>
    ...
    <empty line>
    <stdout><stderr> of each fact, in this order
    END <nonce>

so a banner before it, a fact that prints anything at all, or a connection cut in the middle can't be mistaken for an
answer. Facts run side by side: a hung nvidia-smi costs only its own fact. Exit status 124, 137 and 143 mean that the
fact's own timeout killed it.

Both ends use this module: drivers/ssh builds programs and parses answers, lab/ parses programs and builds answers.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.model.gate import CommandResult

MAX_BYTES = 4 * 1024 * 1024  # per fact and stream; nvidia-smi -q -x of 16 GPUs is under 1 MiB
TIMED_OUT = frozenset({124, 137, 143})  # timeout(1): expired; had to use KILL; busybox, which passes TERM on
ROOM = 512 * 1024  # bytes that a directory of temporary files must take: twice what a host of 16 GPUs answers
PATIENCE_S = 2  # what the program waits beyond the longest timeout before it answers without the stragglers

# Why the program reads as it does:
# - The braces make sh read the whole program before it runs any of it: half a program does nothing.
# - /dev/shm first: facts are most wanted when a root file system is full or has gone read-only.
# - No fact inherits the channel's stdout, or a process that outlives its fact would keep the channel open.
# - `ulimit -f` bounds what a fact can write (bash counts in KiB, dash in half KiB; `head` makes it exact).
# - A process in uninterruptible sleep survives KILL, and busybox's timeout waits for it: the watchdog interrupts
#   `wait`, and what has no exit status by then is answered as timed out, with nothing of its output. Half a line is
#   no status: `read` refuses it.
# - All answers are measured and printed by one process each: one per fact cost a host more than the facts themselves.
#   They are copied first, since a process that outlives its fact may still write; where no room is left for copies,
#   they are answered from where they are.
# - A directory of temporary files without room would lose answers: crashed jobs leave /dev/shm full.
_PRELUDE = """# reconciler-facts 2 {nonce}
{{
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
unset d
for t in /dev/shm /run "${{TMPDIR:-/tmp}}"; do
    d=$(mktemp -d "$t/facts.XXXXXX" 2>/dev/null) || continue
    {{ printf %{room}s . >"$d/room"; }} 2>/dev/null && : >"$d/room" && mkdir "$d/answer" 2>/dev/null && break
    rm -rf "$d"
done
if [ ! -d "$d" ]; then
    echo 'no directory for temporary files' >&2
    exit 71
fi
trap 'rm -rf "$d"' EXIT
trap 'exit 70' HUP INT PIPE TERM
names=
jobs=
fact() {{
    names="$names $1"
    {{
        ulimit -f {blocks} 2>"$d/$1.e"
        timeout -k 1 "$2" sh -c "$3" >"$d/$1.o" 2>"$d/$1.e"
        echo $? >"$d/$1.rc"
    }} </dev/null >/dev/null 2>&1 &
    jobs="$jobs $!"
}}
# facts
"""
_CODA = """# answer
trap : USR1
{{
    trap 'kill $s; exit' TERM
    sleep {seconds} &
    s=$!
    wait $s
    kill -USR1 $$
}} </dev/null >/dev/null 2>&1 &
watchdog=$!
wait $jobs
kill $watchdog 2>/dev/null
cd "$d" || exit 72
files=
late=
copied=
for n in $names; do
    if read -r rc 2>/dev/null <"$n.rc" && [ -f "$n.o" ] && [ -f "$n.e" ]; then
        files="$files $n.o $n.e"
    else
        late="$late $n"
    fi
done
if [ "$files" ]; then
    if cp $files answer; then
        cd answer || exit 72
        copied=1
    fi
    sizes=$(wc -c $files)
fi
echo 'RECONCILER-FACTS 2 {nonce}'
for n in $late; do
    echo "fact $n 124 0 0"
done
[ -z "$files" ] || echo "$sizes" | while read -r size file; do
    if [ "$size" -gt {max} ] && [ "$file" != total ]; then
        size={max}
        [ -z "$copied" ] || {{ head -c {max} "$file" >"$d/cut" && cp "$d/cut" "$file"; }} || exit 72
    fi
    case $file in
    *.o)
        o=$size
        ;;
    *.e)
        read -r rc <"$d/${{file%.e}}.rc"
        echo "fact ${{file%.e}} $rc $o $size"
        ;;
    esac
done
echo
if [ "$copied" ]; then
    cat $files || exit 72
elif [ "$files" ]; then
    echo "$sizes" | while read -r size file; do
        [ "$file" = total ] || head -c $((size > {max} ? {max} : size)) "$file"
    done
fi
rm -rf "$d"
trap - EXIT
echo 'END {nonce}'
exit 0
}}
"""
_HEAD = re.compile(r"# reconciler-facts 2 (\w+)\n")
_BODY = "\n# facts\n"
_TAIL = "\n# answer\n"
_NAME = re.compile(r"[A-Za-z0-9_]{1,80}")
_FACT = re.compile(rb"fact ([A-Za-z0-9_]{1,80}) (-?[0-9]{1,4}) ([0-9]{1,8}) ([0-9]{1,8})\n")


@dataclass(frozen=True, slots=True)
class FactRequest:
    """A fact to read. `command`: POSIX sh; `timeout_s`: whole real seconds.

    `name`: at most 80 letters, digits and underscores, as it names a file on the host.
    """

    name: str
    command: str
    timeout_s: float


class MalformedAnswer(ValueError):
    """The answer is not a whole answer to this program."""


def build_program(requests: Sequence[FactRequest], nonce: str) -> str:
    for request in requests:
        if _NAME.fullmatch(request.name) is None or "\0" in request.command or request.timeout_s <= 0:
            raise ValueError(f"{request!r} can't be asked for in a facts program")
    # Seconds are rounded up: busybox knows no fractions.
    lines = [f"fact {ask.name} {math.ceil(ask.timeout_s)} {shlex.quote(ask.command)}" for ask in requests]
    longest = max((math.ceil(request.timeout_s) for request in requests), default=0)
    return (
        _PRELUDE.format(nonce=nonce, blocks=MAX_BYTES // 512, room=ROOM)
        + "\n".join(lines)
        + "\n"
        + _CODA.format(nonce=nonce, max=MAX_BYTES, seconds=longest + PATIENCE_S)
    )


def parse_program(text: str) -> tuple[str, tuple[FactRequest, ...]]:
    """Return the nonce and requests of a facts program. Raise ValueError when `text` is another script."""
    head = _HEAD.match(text)
    start, end = text.find(_BODY), text.rfind(_TAIL)
    if head is None or not 0 < start < end:
        raise ValueError("not a facts program")
    words = shlex.split(text[start + len(_BODY) : end])
    asked = [words[at : at + 4] for at in range(0, len(words), 4)]
    if any(len(ask) != 4 or ask[0] != "fact" for ask in asked):
        raise ValueError("not a facts program: a line is no fact")
    return head[1], tuple(FactRequest(name, command, float(timeout)) for _, name, timeout, command in asked)


def build_answer(nonce: str, answers: Mapping[str, CommandResult]) -> bytes:
    heads, bodies = [f"RECONCILER-FACTS 2 {nonce}\n"], []
    for name, answer in answers.items():
        out, err = answer.stdout.encode(), answer.stderr.encode()
        status = 124 if answer.timed_out else answer.exit_status
        heads.append(f"fact {name} {status} {len(out)} {len(err)}\n")
        bodies += [out, err]
    return b"".join(["".join([*heads, "\n"]).encode(), *bodies, f"END {nonce}\n".encode()])


def parse_answer(data: bytes, nonce: str) -> dict[str, CommandResult]:
    """Answers by fact name. MalformedFrames when the frame of this nonce is absent, cut or damaged."""
    opening, closing = f"RECONCILER-FACTS 2 {nonce}\n".encode(), f"END {nonce}\n".encode()
    start = data.find(opening)
    if start < 0:
        raise MalformedAnswer("no facts frame in the answer")
    at = start + len(opening)
    heads: dict[str, tuple[int, int, int]] = {}  # exit status, bytes of stdout and stderr
    while not data.startswith(b"\n", at):
        head = _FACT.match(data, at)
        if head is None:
            raise MalformedAnswer(f"the facts frame breaks off after {len(heads)} facts")
        name = head[1].decode()
        if name in heads:
            raise MalformedAnswer(f"fact {name!r} is answered twice")
        heads[name] = int(head[2]), int(head[3]), int(head[4])
        at = head.end()
    at += 1
    answers: dict[str, CommandResult] = {}
    for name, (status, out, err) in heads.items():
        middle, end = at + out, at + out + err
        stdout, stderr = data[at:middle].decode(errors="replace"), data[middle:end].decode(errors="replace")
        answers[name] = CommandResult(-1 if status in TIMED_OUT else status, stdout, stderr, status in TIMED_OUT)
        at = end
    if not data.startswith(closing, at):
        raise MalformedAnswer(f"the answers to {len(heads)} facts are not as long as the facts frame says")
    return answers
