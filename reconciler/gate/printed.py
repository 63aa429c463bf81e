"""Make what tools printed fit to be kept: without environment and secrets, within a bound.

The text is a machine's own words, so no type tells what is a secret in it: names of settings do. It is kept in the
ledger alone, and in no document that others may read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from reconciler.model.gate import CommandResult
from reconciler.model.printable import HIDDEN

LONGEST: Final = 1_048_576  # characters that are kept of one test
_TAIL: Final = LONGEST // 4  # verdicts and errors come last
_PLAIN: Final = "NCCL_|RCCL_|UCX_|OMP_|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES"  # these decide what is measured
# Each pattern takes time in proportion to the text, whatever a machine prints.
# A line that only assigns, as `env` and `export -p` print it. nccl-tests -J has the environment as an object.
_ASSIGNED: Final = re.compile(rf"(?m)^([ \t]*(?:export |declare -x )?(?!{_PLAIN})[A-Z_][A-Z0-9_]*=)\S.*$")
_ENVIRONMENT: Final = re.compile(r'(?i)("env(?:ironment|iron|s|_vars)?"\s*:\s*)(\{[^{}]*\}|\[[^\[\]]*\])')
_NAMED: Final = re.compile(  # the word ends the name: tokens_per_s is no secret
    r"(?i)((?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|secret[_-]?key|credentials?)"
    r"[\"']?\s{0,3}[:=]\s{0,3})(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;}\]]+)"
)
_AUTHORIZED: Final = re.compile(
    r"(?i)(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:basic\s{1,3}|bearer\s{1,3})?|bearer\s{1,3})[^\s\"',]{8,}"
)
_USER: Final = re.compile(r"(://)[^\s/@\"'<>]{1,400}@")  # of a URL, with a password or a token
_PRIVATE: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_HIDING: Final = (
    (_ENVIRONMENT, rf'\1"{HIDDEN}"'),
    (_ASSIGNED, rf"\1{HIDDEN}"),
    (_NAMED, rf"\1{HIDDEN}"),
    (_AUTHORIZED, rf"\1{HIDDEN}"),
    (_USER, rf"\1{HIDDEN}@"),
)


def printed(outputs: Sequence[CommandResult]) -> str:
    """Return what the commands of one test printed, each under a line with its exit status; "" for no command."""
    return bounded("".join(_one(number, output) for number, output in enumerate(outputs, start=1)))


def _one(number: int, output: CommandResult) -> str:
    end = "killed at its timeout" if output.timed_out else f"exit status {output.exit_status}"
    streams = [_ended(without_environment(output.stdout))]
    if output.stderr:
        streams.append(f"--- standard error\n{_ended(without_environment(output.stderr))}")
    return f"--- command {number}: {end}\n{''.join(streams)}"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def without_environment(text: str) -> str:
    """Return the text without values of environment variables and of settings that are called like secrets."""
    text = _PRIVATE.sub(HIDDEN, text.replace("\0", "\ufffd").encode(errors="replace").decode())
    for pattern, shown in _HIDING:
        text = pattern.sub(shown, text)
    return text


def bounded(text: str) -> str:
    """Return the text, or its beginning and its end with a line that says how much is missing between them."""
    if len(text) <= LONGEST:
        return text
    cut = len(text) - LONGEST
    return f"{text[: LONGEST - _TAIL]}\n--- {cut} characters are left out\n{text[-_TAIL:]}"
