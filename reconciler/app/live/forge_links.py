"""Addresses for people: of a commit and of a pull request, on the forge that a repository is fetched from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from reconciler.model.desired import Fleet
from reconciler.model.forge import ForgeKind

# https://host:port/owner/name(.git), ssh://git@host:port/owner/name, git@host:owner/name; credentials are left out, and
# so is the port of ssh, which is not that of the pages.
_URL: Final = re.compile(r"(https?|ssh)://(?:[^/@]*@)?([\w.-]+)(:\d+)?/([\w./-]+?)(?:\.git)?/?")
_SCP: Final = re.compile(r"(?:[\w.-]+@)([\w.-]+):([\w./-]+?)(?:\.git)?/?")
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")


def web_address(remote: str) -> str:
    """Return where people read a repository, from the URL that git fetches it from; "" for a directory."""
    if found := _URL.fullmatch(remote):
        scheme, host, port, path = found.groups()
        return f"https://{host}/{path}" if scheme == "ssh" else f"{scheme}://{host}{port or ''}/{path}"
    found = _SCP.fullmatch(remote)
    return f"https://{found[1]}/{found[2]}" if found else ""


@dataclass(frozen=True, slots=True)
class SpecPages:
    """The pages of a spec's repository. `address`: as `web_address` returns it, "" = unknown; "" are all links then."""

    address: str
    kind: ForgeKind

    @classmethod
    def of(cls, address: str, fleet: Fleet | None) -> SpecPages:
        """Return those of the forge that the Fleet names; else the host's name tells GitLab from GitHub."""
        if fleet is not None:
            inventory = fleet.settings.inventory
            for forge in (fleet.settings.drift_forge, None if inventory is None else inventory.forge):
                if forge is not None:
                    return cls(address, forge.kind)
        host = address.partition("://")[2].partition("/")[0]
        return cls(address, ForgeKind.GITLAB if "gitlab" in host else ForgeKind.GITHUB)

    def commit(self, commit: str) -> str:
        """Return the page of a commit; "" where the address or the commit is not known."""
        if not self.address or not _COMMIT.fullmatch(commit):
            return ""
        return f"{self.address}{'/-' if self.kind is ForgeKind.GITLAB else ''}/commit/{commit}"

    def pull(self, number: int) -> str:
        """Return the page of a pull or merge request; 0 = none is known."""
        if not self.address or not number:
            return ""
        return f"{self.address}/{'-/merge_requests' if self.kind is ForgeKind.GITLAB else 'pull'}/{number}"
