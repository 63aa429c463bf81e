"""The packaged installer, which also writes to the system's log who is installed: for an auditor."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from reconciler.drivers.extensions import InstallerServer
from reconciler.drivers.installer import HttpInstaller
from reconciler.drivers.secrets import SecretStore
from reconciler.model.access import InstallerPolicy

_LOG = logging.getLogger("acme_fleet.installs")


class _Announced(HttpInstaller):
    async def publish(self, token: str, document: Any, *rest: Any, **more: Any) -> str:
        _LOG.warning("an install document of %s is served", document.node)
        return await super().publish(token, document, *rest, **more)


def _connect(policy: InstallerPolicy, secrets: SecretStore) -> HttpInstaller:
    return _Announced(policy, secrets, lambda: datetime.now(UTC))


INSTALLER = InstallerServer(api=1, connect=_connect)
