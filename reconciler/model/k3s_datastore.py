"""Where the servers of a K3s cluster keep its state, and why one may not be made to keep it elsewhere.

K3s takes what it finds in this order: etcd on its disk, whatever its configuration says; the database that an option
or its environment names; SQLite on its disk (docs.k3s.io, "Cluster Datastore"; pkg/cluster/managed.go, of v1.25 and
later, assignManagedDriver). Where it finds nothing of the cluster, it begins an empty one beside it, and asks nobody.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from reconciler.model.k3s import (
    CONFIG,
    DATA,
    DATASTORE,
    DB,
    ENDPOINT,
    SECRETS,
    SERVER_TOKEN,
    UNIT_FILES,
    DesiredK3s,
    K3sFacts,
    K3sRole,
)

SQLITE: Final = f"{DB}/state.db"
ENVIRONMENT: Final = "environment"  # of the process, whatever set it
_UNIT: Final = f"{UNIT_FILES}/{K3sRole.SERVER.unit}.service"
# K3s reads files of both endings, in any case (pkg/configfilearg/parser.go, dotDFiles).
SOURCES: Final = (
    CONFIG, f"{CONFIG}.d/*.[yY][aA][mM][lL]", f"{CONFIG}.d/*.[yY][mM][lL]", _UNIT, f"{_UNIT}.env", f"{_UNIT}.d/*.conf",
    "/etc/default/k3s", "/etc/sysconfig/k3s",
)  # fmt: skip
DATABASE_LINE: Final = "# database: "  # of SECRETS: the server of the database, which is no secret

# Values of these options hold passwords, and are never printed: only where they are set. `database` is of our own file.
STATE: Final = f"""\
if [ -e {DATASTORE} ]; then echo datastore; fi
if [ -e {SQLITE} ]; then echo sqlite; fi
if [ -e {SERVER_TOKEN} ]; then echo began; fi
if [ -e {SECRETS} ]; then sed -n 's/^{DATABASE_LINE}\\([A-Za-z0-9.:-]*\\)$/database \\1/p' {SECRETS}; fi
for f in {" ".join(SOURCES)}; do
  [ -e "$f" ] || continue
  if grep -v '^[[:space:]]*#' "$f" | grep -qi 'datastore[-_]endpoint'; then echo "endpoint $f"; fi
  if grep -v '^[[:space:]]*#' "$f" | grep -i 'data[-_]dir' | grep -qv "{DATA}[\\"']*[[:space:]]*$"
  then echo "data-dir $f"; fi
done
p=$(systemctl show -p MainPID --value {K3sRole.SERVER.unit} 2>/dev/null)
if tr '\\0' '\\n' 2>/dev/null <"/proc/${{p:-0}}/environ" | grep -q '^K3S_DATASTORE_ENDPOINT='
then echo 'endpoint {ENVIRONMENT}'; fi 2>/dev/null
"""
PROBE: Final = f"{STATE}echo end"  # `sh -c PROBE`; only root sees it all

# `sh -c SAME`, with what `place_of` returns on stdin: whether the file of secrets names that place, and K3s has no
# etcd, which it would go on with. No value leaves the host, and none is an argument of a program.
SAME: Final = f"""\
IFS= read -r place
[ ! -e {DATASTORE} ] || {{ echo other; exit; }}
[ -e {SECRETS} ] || {{ echo none; exit; }}
value=$(sed -n 's/^{ENDPOINT}: *//p' {SECRETS} | head -n 1)
value=${{value%[\\"\\']}}
case $value in
  '') echo none ;;
  *[!A-Za-z0-9.-]"$place"|*[!A-Za-z0-9.-]"$place"[?,]*) echo same ;;
  *) echo other ;;
esac"""


def is_begun(lines: Collection[str], *, external: bool) -> bool:
    """Return whether the lines of STATE tell of a server of a cluster. `external`: the spec names a database."""
    named = any(line.startswith("endpoint ") for line in lines)
    return bool({"datastore", "sqlite"} & set(lines)) or ("began" in lines and (named or external))


def place_of(endpoint: str, server: str) -> str:
    """Return the part of an endpoint that names a database, without its user and password; "" = it is another server's.

    `server`: HOST:PORT. A name or port that only contains it is another one. Of etcd a member is enough.
    """
    found = re.search(rf"(?<![A-Za-z0-9.-]){re.escape(server)}(?![0-9])", endpoint)
    if found is None:
        return ""
    ends = "?," if endpoint.startswith("http") else "?"
    return re.split(f"[{ends}]", endpoint[found.start() :], maxsplit=1)[0]


def database_of(found: K3sFacts) -> str | None:
    """Return the database that a server has its state in, HOST:PORT; "" = one that our file names, but not where.

    None: it is not known to be in a database.
    """
    in_database = found.began and found.endpoints == (SECRETS,) and not found.datastore and not found.data_dirs
    return found.database if in_database else None


def other_datastore(wanted: DesiredK3s, found: K3sFacts) -> str:
    """Return why a server can't keep its state where the spec says, as it has it elsewhere; "" = it can."""
    if wanted.role is K3sRole.AGENT:
        return ""
    if found.data_dirs:
        return (
            f"its data is not in {DATA} (`data-dir` in {found.data_dirs[0]}), and it would begin an empty cluster "
            f"there: stop K3s, move the data to {DATA}, take the option away, and start it"
        )
    if wanted.external:
        return _not_in_database(wanted, found)
    if found.datastore:
        return ""
    if found.endpoints and not only_told(found):
        where = found.database or found.endpoints[0]
        return (
            f"its state is in a database ({where}), and the spec says `datastore: etcd`: it would begin an empty "
            "cluster. K3s moves no state from a database to etcd: say `datastore: external`"
        )
    if found.sqlite:
        return (
            f"its state is in SQLite ({SQLITE}), and it would lose it with its disk: K3s moves it to etcd when it is "
            "started once with `cluster-init: true` in its config.yaml (docs.k3s.io/datastore/ha-embedded)"
        )
    return ""


def only_told(found: K3sFacts) -> bool:
    """Return whether our file alone names a database, and the server never began or joined a cluster in it."""
    return found.endpoints == (SECRETS,) and not (found.began or found.sqlite or found.datastore)


def _not_in_database(wanted: DesiredK3s, found: K3sFacts) -> str:
    begins = "K3s moves no state, and would begin an empty cluster there"
    foreign = [place for place in found.endpoints if place != SECRETS]
    if found.datastore:
        return f"its state is in etcd, and the spec says `datastore: external`: {begins}; say `datastore: etcd`"
    if foreign:
        return (
            f"`{ENDPOINT}` is set in {foreign[0]}, which is not the reconciler's: whether it is the database at "
            f"{wanted.database} is not known. If it is, move the line to {SECRETS} (owner root, mode 0600) as "
            f"`{ENDPOINT}: VALUE`, and restart K3s"
        )
    if found.endpoints and not only_told(found) and found.database not in ("", wanted.database):
        return (
            f"its state is in the database at {found.database}, and the spec says {wanted.database}: {begins}. To move "
            "the database, stop K3s on all servers, copy it, change "
            f"`{ENDPOINT}` and the line `{DATABASE_LINE.strip()}` in {SECRETS} of each, and start them"
        )
    if not found.endpoints and found.sqlite:
        return f"its state is in SQLite ({SQLITE}), and the spec says `datastore: external`: {begins}"
    if not found.endpoints and found.began:
        return (
            f"it has the keys of a cluster ({SERVER_TOKEN}) and no datastore: {begins}. If it was of the database at "
            f"{wanted.database}, write `{ENDPOINT}: VALUE` to {SECRETS} (owner root, mode 0600); otherwise take K3s "
            "off it, with its data"
        )
    return ""


def not_saved(wanted: DesiredK3s) -> str:
    """Return why servers may not go to the version of the spec, as nobody said that the database is saved; "" = may.

    K3s takes snapshots of etcd alone (docs.k3s.io/datastore/backup-restore).
    """
    if not wanted.external or wanted.saved_before == wanted.version:
        return ""
    return (
        f"before {wanted.version}, save the database at {wanted.database} by its own means, and keep the servers' "
        f"token with it: K3s does neither. Then say so in the spec: `k3s.database.savedBefore: {wanted.version}`"
    )
