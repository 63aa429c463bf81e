"""The secrets that actions give to hosts, as a node's profile names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.model.desired import Profile


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A secret that a host is given. `server`: where the host uses it; None: on the host itself."""

    name: str
    server: str | None
    purpose: str


def secret_uses(profile: Profile) -> Iterator[SecretUse]:
    """Yield each secret that the hosts of a profile are given."""
    if (backup := profile.backup) is not None:
        for variable, name in sorted(backup.environment.items()):
            yield SecretUse(name, backup.server, f"{variable} of a backup")
    if (k3s := profile.k3s) is not None:
        for option, secret in sorted(k3s.secrets.items()):
            yield SecretUse(secret.name, secret.server, f"{option} of K3s")
        if k3s.token is not None:
            yield SecretUse(k3s.token.name, k3s.token.server, "the token of K3s' servers")
