"""Safe forms of strings that others make: no character that acts on a terminal or a log, no secret of a URL.

Names of files and branches, words of BMCs, hosts, git and kubectl, and what was typed reach terminals, job logs and
documents. A control character or a bidirectional override in one moves the cursor, repaints a screen or turns text
around; a line break starts a line of its own, which a runner of GitHub may take for a command (`::error ...`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

HIDDEN: Final = "***"
SEALED: Final = "sealed-"  # what a digest in place of a name begins with
_UNSAFE: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
# Line breaks are structure in JSON, and no other control character stands outside of its strings.
_JSON: Final = re.compile("[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b-\u200f\u2028-\u202e"
                          "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")  # fmt: skip
_COMMAND: Final = re.compile(r"(?m)^(\s*)::")
_OLD_COMMAND: Final = re.compile(r"#(?=#\[|#vso\[)")  # a runner finds this form anywhere in a line


def is_safe(char: str) -> bool:
    """Return whether a character changes nothing but its own place."""
    return unicodedata.category(char) not in _UNSAFE


def visible(text: str, *, keep: str = "") -> str:
    """Every control, format and unassigned character as an escape: \\x1b, \\u202e. `keep`: those that stay."""
    if text.isprintable():
        return text
    return "".join(char if char in keep or is_safe(char) else _escape(char) for char in text)


def _escape(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    return named or (f"\\x{ord(char):02x}" if char.isascii() else char.encode("ascii", "backslashreplace").decode())


def lines(text: str) -> str:
    """A text of several lines, for a stream: nothing acts on a terminal, and no line is a command to a CI runner.

    A backslash breaks a command up; Markdown does not show it.
    """
    shown = visible(text, keep="\n\t\u200b")  # the last parts links and mentions in Markdown, and is put there by us
    return without_old_commands(_COMMAND.sub(r"\1\\::", shown)) if "::" in shown or "##" in shown else shown


def without_old_commands(line: str) -> str:
    """Return a line with commands of the form ##[...] broken up, which a runner finds anywhere."""
    return _OLD_COMMAND.sub(r"#\\", line)


def json_lines(document: str) -> str:
    """JSON, equal in value: what would act on a terminal or a runner is escaped inside of its strings."""
    escaped = _JSON.sub(lambda match: _json_escape(match[0]), document)
    return _OLD_COMMAND.sub(r"\\u0023", escaped) if "##" in escaped else escaped


def _json_escape(char: str) -> str:
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02x}{data[at + 1]:02x}" for at in range(0, len(data), 2))


# --- URLs -------------------------------------------------------------------------------------------------------------

_HARMLESS: Final = frozenset({
    "sslmode", "host", "hostaddr", "port", "dbname", "user", "application_name", "connect_timeout",
    "target_session_attrs", "channel_binding", "gssencmode", "ref", "page", "per_page", "state",
})  # fmt: skip
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(:/{1,2})([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)
_PLACE: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[\w.*-]*)(?::\d*)?(?:,(?:\[[0-9A-Fa-f:.]+\]|[\w.*-]*)(?::\d*)?)*")
_EMBEDDED: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/[^\s\"'<>`]+")
_ATTEMPT: Final = re.compile(r"/[A-Za-z0-9_-]{16,128}(?=/(?:boot\.iso|install\.json|status|hostkey|attest/)\b)")
_KEYS: Final = "password|passwd|pwd|sslpassword|passphrase|token|secret"
_SETTING: Final = re.compile(rf"(?i)\b({_KEYS})=(?!\*\*\*)('[^']*'|[^\s&;,\"')]+)")


def shown_url(text: str) -> str:
    """A URL without what may be a secret: a password, a user of HTTP (which may be a token), all of a query but values
    of a short list of harmless keys, a fragment. What is no proper URL shows its scheme alone. Text without :// is
    returned as it is.
    """
    match = _URL.fullmatch(text)
    if match is None:
        return text
    scheme, slashes, head, query, fragment = match.groups()
    userinfo, at, rest = head.rpartition("@")  # the last one: a password may hold more that should have been quoted
    place, slash, path = rest.partition("/")
    if not _PLACE.fullmatch(place) or "@" in (query or "") + (fragment or ""):
        return f"{scheme}{slashes}{HIDDEN}"
    who = ""
    if at:
        user, colon, _ = userinfo.partition(":")
        known = scheme.lower() not in ("http", "https") and re.fullmatch(r"[\w.-]*", user)
        who = (user if known else HIDDEN) + (f":{HIDDEN}" if colon and known else "") + "@"
    shown = f"{scheme}{slashes}{who}{place}{slash}{path}"
    if query is not None:
        shown += "?" + _shown_query(re.split("[&;]", query))
    return shown + (f"#{HIDDEN}" if fragment else "")


def _shown_query(pairs: Sequence[str]) -> str:
    """Show harmless pairs, and the first other key without its value.

    Keys behind it may be parts of that value: of a password with an & that should have been quoted.
    """
    shown: list[str] = []
    hidden = False
    for pair in pairs:
        key, equals, _ = pair.partition("=")
        if equals and key.lower() in _HARMLESS:
            shown.append(pair)
            continue
        named = equals and not hidden and re.fullmatch(r"[\w.-]{1,40}", key)
        shown.append(f"{key}={HIDDEN}" if named else HIDDEN)
        hidden = True
    return "&".join(shown)


def without_attempts(text: str) -> str:
    """Return a text without the tokens of install attempts: whoever has such a URL can speak for the machine."""
    return _ATTEMPT.sub(f"/{HIDDEN}", text) if "/" in text else text


def without_secrets(text: str) -> str:
    """Return a text of others without the secrets of URLs and settings in it."""
    text = without_attempts(text)
    if ":/" in text:
        text = _EMBEDDED.sub(lambda match: shown_url(match[0]) if set(match[0]) & set("@?#") else match[0], text)
    return _SETTING.sub(rf"\1={HIDDEN}", text) if "=" in text else text
