"""The fact of K3s: its program, units, files and images, where its state is, and when its certificates end.

Each line is a word and a value; `end` tells that all of it was read. A host without K3s prints `end` alone. Below
/var/lib/rancher/k3s/server only root may look: to anybody else a datastore would seem absent, so the fact fails.
`openssl x509` reads the first certificate of a file: K3s puts the leaf first (docs.k3s.io, "certificate").
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from reconciler.drivers.deprecated_apis import METRIC, parse_deprecated
from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import (
    BINARY,
    CONFIG,
    DATA,
    DATASTORE,
    DUE,
    ENDPOINT,
    IMAGES,
    NONE,
    REGISTRIES,
    RESTART_DUE,
    SECRETS,
    SERVER_TOKEN,
    UNIT_FILES,
    K3sFacts,
    K3sRole,
)
from reconciler.model.k3s_datastore import STATE

ANSWERS_S: Final = 5  # an API server answers its metrics, some MB of text, in less than one second
RENEW_S: Final = 60 * 86400  # K3s renews what ends within 120 days, and before May 2025 within 90
_ASKED: Final = "deprecated "
_NAMING = ("image", "secret", "endpoint", "data-dir", "database")  # begin a line with one name
_WORDS = frozenset(
    {"datastore", "sqlite", "began", "restart", "renewal due", "renewal unknown", "deprecated unknown", "end"}
)
_VERSION = re.compile(r"k3s version (v\S+) \(\w+\)")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNITS = tuple(role.unit for role in K3sRole)
_FILES = (CONFIG, REGISTRIES, *(f"{UNIT_FILES}/{unit}.service" for unit in _UNITS))
_COMMAND = f"""\
if [ -e {BINARY} ] || [ -e {DATA} ]; then
  [ "$(id -u)" = 0 ] || {{ echo 'permission denied: K3s shows itself to root alone' >&2; exit 1; }}
  if [ -x {BINARY} ]; then {BINARY} --version | sed -n '1s/^/version /p'; fi
  for u in {" ".join(_UNITS)}; do
    if [ -e {UNIT_FILES}/$u.service ]; then echo "unit $u $(systemctl is-active $u)"; fi
  done
  for f in {" ".join(_FILES)}; do if [ -e $f ]; then echo "file $(sha256sum $f)"; fi; done
  for f in {IMAGES}/*; do if [ -e "$f" ]; then echo "image ${{f##*/}}"; fi; done
  {STATE}
  if [ -e {SECRETS} ]; then sed -n 's/^\\([a-z0-9-]*\\): .*/secret \\1/p' {SECRETS}; fi
  if [ -e {DATASTORE} ] || {{ [ -e {SERVER_TOKEN} ] && grep -qs '^{ENDPOINT}: ' {SECRETS}; }}; then
    if m=$(timeout {ANSWERS_S} {BINARY} kubectl get --raw /metrics 2>/dev/null); then
      printf '%s\\n' "$m" | sed -n 's/^{METRIC}{{/deprecated &/p'
    else echo deprecated unknown; fi
  fi
  if [ -e {RESTART_DUE} ]; then echo restart; fi
  for f in {DATA}/agent/*.crt {DATA}/server/tls/*.crt {DATA}/server/tls/etcd/*.crt; do
    case $f in *-ca.crt|*'*'*) continue;; esac
    soon=0
    e=$(openssl x509 -noout -enddate -checkend {RENEW_S} -in "$f" 2>/dev/null) || soon=1
    case $e in notAfter=*) ;; *) echo renewal unknown; continue;; esac
    printf '%s\\n' "$e" | sed -n 's/^notAfter=/ends /p'
    if [ $soon = 1 ]; then echo renewal due; fi
  done
fi
echo end"""


def parse_k3s(answer: CommandResult) -> Parsed[K3sFacts]:
    lines = [line.split() for line in answer.stdout.splitlines()]
    if not lines or lines[-1] != ["end"]:
        raise Unreadable(f"the fact broke off: {excerpt(answer.stdout, 80)!r}")
    version, units, files, words, ends = "", {}, {}, set(), []
    named: dict[str, list[str]] = {word: [] for word in _NAMING}
    metrics = [line.removeprefix(_ASKED) for line in answer.stdout.splitlines() if line.startswith(_ASKED)]
    for line in lines:
        match line:
            case ["version", *rest]:
                version = _version(" ".join(rest))
            case ["unit", unit, state]:
                units[unit] = state in ("active", "activating")
            case ["file", digest, path] if _DIGEST.fullmatch(digest):
                files[path] = digest
            case [word, name] if word in named:
                named[word].append(name)
            case ["ends", *rest]:
                ends.append(end := _date(" ".join(rest)))
                words |= {"renewal unknown"} if end is None else set()
            case ["deprecated", text, _] if text.startswith(METRIC):
                pass
            case _ if " ".join(line) in _WORDS:
                words.add(" ".join(line))
            case _:
                raise Unreadable(f"no line of this fact: {excerpt(' '.join(line), 80)!r}")
    renewal = DUE if "renewal due" in words else None if "renewal unknown" in words else NONE
    notes = {} if renewal is not None else {"k3s.renewal": "malformed: openssl can't read a certificate"}
    try:
        asked = None if "deprecated unknown" in words else parse_deprecated(metrics)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    if asked is None:
        notes["k3s.deprecated"] = "its API server does not say which deprecated APIs are in use"
    found = K3sFacts(
        version, units, files, tuple(named["image"]), "datastore" in words, DUE if "restart" in words else NONE,
        renewal, asked, _sorted(named["secret"]), "sqlite" in words, "began" in words, _sorted(named["endpoint"]),
        _sorted(named["data-dir"]), "".join(named["database"][:1]), min(filter(None, ends), default=None),
    )  # fmt: skip
    return Parsed(found, notes)


def _sorted(names: list[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _version(text: str) -> str:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise Unreadable(f"no version of K3s: {excerpt(text, 80)!r}")
    return match[1]


def _date(text: str) -> datetime | None:
    """Parse what `openssl x509 -enddate` prints, as Nov  8 05:49:00 2027 GMT; None for what is no date."""
    try:
        return datetime.strptime(text, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    except ValueError:
        return None


K3S = Fact("k3s", _COMMAND, parse_k3s, ("k3s",), timeout_s=10.0)
