"""Take secrets out of texts that are kept: by the type of what looks like one, and by the values that are known.

What is concealed is replaced by its type in quotation marks, as «password». Types are told by their form, so a secret
without a form of its own (a bare word) is found by its value alone: `without` gets those that the process has read.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

SHORTEST: Final = 4  # characters of a value that is looked for: shorter ones are part of nearly every text
_NOTHING: Final = "«»"


@dataclass(frozen=True, slots=True)
class SecretType:
    """A type of secret. `form`: what it looks like; its group `keep` stays."""

    name: str
    form: re.Pattern[str]


_FLAGS: Final = re.IGNORECASE | re.MULTILINE
_NAMED: Final = (
    r"[\w.-]{0,40}(?:passw(?:or)?d|passwd|passphrase|pwd|secret|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
    r"[\w.-]{0,40}"
)
_TOKEN: Final = r"[\w.-]{0,40}token[\w.-]{0,40}"
_VALUE: Final = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s,;"'}\]]+)"""
_SET: Final = r"""\\?["']?\s*(?:=>|[:=])\s*"""


def _type(name: str, form: str) -> SecretType:
    return SecretType(name, re.compile(form, _FLAGS))


# In this order: what holds others comes first. Sources of the forms: RFC 7468 (PEM), RFC 7519 (JWT), RFC 7617 and 6750
# (Authorization), DSP0266 13.3 (X-Auth-Token), crypt(5), cloud-init's formats of user data, kubeconfig (v1), kubeadm's
# bootstrap tokens, and what GitHub, GitLab, Slack, AWS, Google, NVIDIA and Hugging Face document of their tokens.
_PEM: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_USER_DATA: Final = (
    r"#cloud-config|## template: jinja|#include|#cloud-boothook"
    r"|Content-Type: (?:multipart/mixed|text/(?:cloud-config|x-shellscript))"
)
_SECTION: Final = r"(?=^(?:_{10,}|\*{10,})|\Z)"  # as nvidia-bug-report.sh parts its sections
_KUBECONFIG: Final = "client-key-data|client-certificate-data|certificate-authority-data|id-token|refresh-token"
_HEADERS: Final = r"X-Auth-Token|X-CSRF-?Token|X-XSRF-TOKEN|Set-Cookie|Cookie|QSESSIONID"
_VENDORS: Final = (
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{8,}|hf_[A-Za-z0-9]{20,}"
    r"|nvapi-[\w-]{20,}|AIza[\w-]{30,}|sk-[\w-]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|K10[0-9a-f]{20,}::[^\s\"']+"
)
TYPES: Final = (
    _type("key", rf"-----BEGIN {_PEM}[\s\S]*?(?:-----END {_PEM}|\Z)"),
    _type("key", rf"\A[A-Za-z0-9+/=\s\\]*-----END {_PEM}"),  # whose beginning was cut off
    _type("key", r"\bAGE-SECRET-KEY-1[A-Z0-9]+"),
    _type("user data", rf"^(?:{_USER_DATA})[\s\S]*?{_SECTION}"),
    _type("user data", rf"(?P<keep>\buser[_-]?data{_SET}){_VALUE}"),
    _type("kubeconfig", rf"(?P<keep>\b(?:{_KUBECONFIG}){_SET}){_VALUE}"),
    _type("session", rf"(?P<keep>\b(?:{_HEADERS})\\?[\"']?\s*[:=]\s*)[^\r\n]+"),
    _type("session", r"(?P<keep>/redfish/v1/SessionService/Sessions/)[^\s\"'/,}]+"),
    _type("password", r"(?P<keep>\b(?:Proxy-)?Authorization\\?[\"']?\s*[:=]\s*[\"']?)[^\r\n\"']+"),
    _type("password", r"(?P<keep>\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@:\"']*:[^\s/@\"']*(?=@)"),
    _type("password", r"\$(?:1|2[abxy]|5|6|7|y|gy|argon2id?)\$[./A-Za-z0-9$=,+-]{8,}"),
    _type("password", rf"(?P<keep>(?:^|[^\w.-])\\?[\"']?{_NAMED}{_SET}){_VALUE}"),
    _type("password", rf"(?P<keep>(?:^|\s)--?(?:password|passwd|passphrase|secret)[ =]){_VALUE}"),
    _type("password", r"(?P<keep>\b(?:ipmitool\b[^\r\n]{0,200}?\s-P|sshpass\s+-p|curl\b[^\r\n]{0,200}?\s-u) ?)\S+"),
    _type("token", r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    _type("token", rf"\b(?:{_VENDORS})"),
    _type("token", r"(?<![\w.])[a-z0-9]{6}\.[a-z0-9]{16}(?![\w.])"),
    _type("token", rf"(?P<keep>(?:^|[^\w.-])\\?[\"']?{_TOKEN}{_SET}){_VALUE}"),
    _type("token", r"(?P<keep>\bBearer\s+)[\w.~+/=-]{8,}"),
    _type("e-mail", r"[\w.+%-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24}\b"),
)


# Each form needs another sign than these, or twenty of them: a document is mostly words and numbers that have none.
_WORD: Final = re.compile(r"[A-Za-z0-9_]{0,19}")


def conceal(text: str) -> str:
    """Return the text without what looks like a secret of one of TYPES."""
    if _WORD.fullmatch(text):
        return text
    for kind in TYPES:
        keeps = r"\g<keep>" if "keep" in kind.form.groupindex else ""
        text = kind.form.sub(f"{keeps}«{kind.name}»", text)
    return text


class Forms:
    """Secret values, plain and as JSON, URLs and base64 write them. Short ones are left out.

    A text is looked through once for all of them: a fleet of ten thousand BMCs with passwords of their own has fifty
    thousand forms. Making this costs a hundred times what looking through a line of text does, so callers keep it.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._by_start: dict[str, list[str]] = {}
        for form in {form for one in secrets for form in _written(one)}:
            self._by_start.setdefault(form[:SHORTEST], []).append(form)

    def without(self, text: str) -> str:
        """Return the text without any of them."""
        for form in self._within(text):
            text = text.replace(form, _NOTHING)
        while found := self._within(text):  # what was joined by a replacement, or is part of one
            for form in found:
                text = text.replace(form, "")
        return text

    def _within(self, text: str) -> Sequence[str]:
        """Return the forms that a text holds, the longest first."""
        starts = {text[at : at + SHORTEST] for at in range(len(text) - SHORTEST + 1)}
        some = (form for start in starts & self._by_start.keys() for form in self._by_start[start])
        return sorted((form for form in some if form in text), key=len, reverse=True)


def _written(secret: str) -> Iterator[str]:
    for value in (secret, secret.strip()):
        if len(value) >= SHORTEST:
            yield value
            yield json.dumps(value)[1:-1]
            yield json.dumps(value, ensure_ascii=False)[1:-1]
            yield quote(value, safe="")
            yield base64.b64encode(value.encode()).decode().rstrip("=")


def values_of(secret: str) -> Collection[str]:
    """Return what a secret holds that must not be told: the whole, and each text of a JSON document but user names."""
    try:
        document = json.loads(secret)
    except ValueError:
        document = None
    inner = [text for text in _texts(document) if len(text) >= SHORTEST] if isinstance(document, dict) else []
    return (secret, *inner)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "username":
                yield from _texts(item)


def everywhere(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a document in which each text, of a key too, is changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): everywhere(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [everywhere(item, change) for item in value]
    if value is None or isinstance(value, int | float):
        return value
    return change(str(value))
