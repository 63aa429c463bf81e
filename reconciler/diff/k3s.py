"""The managed values of K3s on a node (`cluster.k3s.*`), all read from the host over SSH."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from reconciler.diff.managed import Managed
from reconciler.diff.readings import ABSENT, Fact, Missing
from reconciler.model.desired import Profile
from reconciler.model.k3s import CONFIG, NONE, OUR_IMAGES, REGISTRIES, K3sFacts
from reconciler.model.vocab import Concern, Source, UnknownReason

K3S: Final = "cluster.k3s."
OF_VERSION: Final = (f"{K3S}version", f"{K3S}images")  # what another release changes
_NAMES: Final = {CONFIG: "config", REGISTRIES: "registries"}  # the third file is the unit


def k3s_rows(profile: Profile) -> list[Managed]:
    wanted = profile.k3s
    if wanted is None:
        return []
    rows = [_row("version", wanted.version, _version)]
    if wanted.image_file:
        rows.append(_row("images", wanted.image_file, partial(_images, wanted.image_file)))
    for path, text in wanted.files.items():
        digest = hashlib.sha256(text.encode()).hexdigest() if text else ABSENT
        rows.append(_row(row_of(path).removeprefix(K3S), digest, partial(_file, path)))
    wanted_secrets = " ".join(sorted(wanted.secrets)) or ABSENT
    rows.append(_row("secrets", wanted_secrets, _secrets))
    if wanted.external:
        rows.append(_row("database", wanted.database, lambda found: found.database or ABSENT))
    return [*rows, _row("restart", NONE, lambda found: found.restart), _row("renewal", NONE, _renewal)]


def row_of(path: str) -> str:
    """Return the value path of a file."""
    return f"{K3S}{_NAMES.get(path, 'unit')}"


def _row(name: str, wanted: str, shape: Callable[[K3sFacts], Hashable]) -> Managed:
    return Managed(f"{K3S}{name}", Concern.CLUSTER, Source.SSH, wanted, wanted, Fact("host", "k3s", shape))


def _version(found: K3sFacts) -> Hashable:
    return found.version or ABSENT


def _images(name: str, found: K3sFacts) -> Hashable:
    """Return the declared file if it is there, else what there is of other releases: before an upgrade, that of now."""
    ours = [one for one in sorted(found.images) if OUR_IMAGES.fullmatch(one)]
    return name if name in found.images else ", ".join(ours) or ABSENT


def _file(path: str, found: K3sFacts) -> Hashable:
    return found.files.get(path, ABSENT)


def _secrets(found: K3sFacts) -> Hashable:
    return " ".join(found.secrets) or ABSENT


def _renewal(found: K3sFacts) -> Hashable:
    return Missing(UnknownReason.MALFORMED, "a certificate can't be read") if found.renewal is None else found.renewal
