"""The facts program: one POSIX sh program on the stdin of `sh -s`, every fact under its own timeout, answers framed.

The program starts with a comment that names its protocol and a nonce, and has one line per fact. The answer is

    RECONCILER-FACTS 1 <nonce>
    fact <name> <exit status> <stdout bytes> <stderr bytes>
    <stdout><stderr>
    ...
    END <nonce>

so a banner before it, a fact that prints anything at all, or a connection cut in the middle can't be mistaken for an
answer. Facts run side by side: a hung nvidia-smi costs only its own fact. Exit status 124 and 137 mean that the
fact's own timeout killed it.

Both ends use this module: drivers/ssh builds programs and parses answers, lab/ parses programs and builds answers.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.model.gate import CommandResult

MAX_BYTES = 4 * 1024 * 1024  # per fact and stream; nvidia-smi -q -x of 16 GPUs is under 1 MiB
TIMED_OUT = frozenset({124, 137})

_PRELUDE = """# reconciler-facts 1 {nonce}
d=$(mktemp -d) || exit 71
trap 'rm -rf "$d"' EXIT
names=
fact() {{
    names="$names $1"
    {{
        timeout -k 1 "$2" sh -c "$3" >"$d/$1.o" 2>"$d/$1.e" </dev/null
        echo $? >"$d/$1.rc"
    }} &
}}
"""
_CODA = """wait
echo 'RECONCILER-FACTS 1 {nonce}'
for n in $names; do
    head -c {max} "$d/$n.o" >"$d/o"
    head -c {max} "$d/$n.e" >"$d/e"
    echo "fact $n $(cat "$d/$n.rc") $(wc -c <"$d/o") $(wc -c <"$d/e")"
    cat "$d/o" "$d/e"
    echo
done
echo 'END {nonce}'
"""


@dataclass(frozen=True, slots=True)
class FactRequest:
    """`name`: letters, digits and underscores. `command`: POSIX sh text. `timeout_s`: wall-clock seconds."""

    name: str
    command: str
    timeout_s: float


class MalformedFrames(ValueError):
    """The answer is not a whole answer to this program."""


def build_program(requests: Sequence[FactRequest], nonce: str) -> str:
    lines = [f"fact {request.name} {request.timeout_s:g} {shlex.quote(request.command)}" for request in requests]
    return _PRELUDE.format(nonce=nonce) + "\n".join(lines) + "\n" + _CODA.format(nonce=nonce, max=MAX_BYTES)


def parse_program(text: str) -> tuple[str, tuple[FactRequest, ...]]:
    """Nonce and requests of a facts program. ValueError when `text` is some other script."""
    first, _, rest = text.partition("\n")
    words = first.split()
    if words[:3] != ["#", "reconciler-facts", "1"] or len(words) != 4:
        raise ValueError("not a facts program")
    requests = []
    lexer = shlex.shlex(rest[rest.index("}\n", rest.index("} &")) :], posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    tokens = list(lexer)
    for at, token in enumerate(tokens):
        if token == "wait":
            break
        if token == "fact":
            name, timeout, command = tokens[at + 1 : at + 4]
            requests.append(FactRequest(name, command, float(timeout)))
    return words[3], tuple(requests)


def build_answer(nonce: str, answers: Mapping[str, CommandResult]) -> bytes:
    parts = [f"RECONCILER-FACTS 1 {nonce}\n".encode()]
    for name, answer in answers.items():
        out, err = answer.stdout.encode(), answer.stderr.encode()
        status = 124 if answer.timed_out else answer.exit_status
        parts += [f"fact {name} {status} {len(out)} {len(err)}\n".encode(), out, err, b"\n"]
    return b"".join([*parts, f"END {nonce}\n".encode()])


def parse_answer(data: bytes, nonce: str) -> dict[str, CommandResult]:
    """Answers by fact name. MalformedFrames when the frame of this nonce is absent, cut or damaged."""
    start = data.find(f"RECONCILER-FACTS 1 {nonce}\n".encode())
    if start < 0:
        raise MalformedFrames("no facts frame in the answer")
    at = data.index(b"\n", start) + 1
    answers: dict[str, CommandResult] = {}
    while True:
        end = data.find(b"\n", at)
        words = data[at : max(end, at)].decode(errors="replace").split()
        if words == ["END", nonce]:
            return answers
        if (
            end < 0
            or len(words) != 5
            or words[0] != "fact"
            or not all(word.lstrip("-").isdigit() for word in words[2:])
        ):
            raise MalformedFrames(f"the facts frame breaks off after {len(answers)} facts")
        status, out_bytes, err_bytes = (int(word) for word in words[2:])
        body, at = end + 1, end + 1 + out_bytes + err_bytes + 1
        if data[at - 1 : at] != b"\n":
            raise MalformedFrames(f"fact {words[1]!r} is cut short")
        out = data[body : body + out_bytes].decode(errors="replace")
        err = data[body + out_bytes : at - 1].decode(errors="replace")
        timed_out = status in TIMED_OUT
        answers[words[1]] = CommandResult(-1 if timed_out else status, out, err, timed_out)
