"""The login of one BMC, as the secrets store has it at present."""

from __future__ import annotations

import contextlib

from reconciler.drivers.secrets import Credentials, SecretConflict, SecretError, SecretStore
from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure


class NodeLogin(Confined):
    """`secret`: its name. One that all nodes share is read at once, and SecretError raised; one of each, when needed.

    A fleet has thousands of those, and each may cost a program a second.
    """

    def __init__(self, store: SecretStore, secret: str, address: str, node: str) -> None:
        self._store = store
        self._secret = secret
        self._address = address
        self._node = node
        of_each = store.is_of_each_node(secret)
        self._last = None if of_each else store.credentials(secret, address)

    def read(self) -> Credentials:
        """Return the credentials of now, or the last ones where they can't be read. DriverError AUTH without any."""
        try:
            self._last = self._store.credentials(self._secret, self._address, node=self._node, fresh=True)
        except SecretError as error:
            if self._last is None:
                raise DriverError(Failure.AUTH, str(error)) from None
        return self._last

    def replace(self, before: Credentials, new: Credentials) -> None:
        """Keep new credentials in the store for those `before`, and read them back. DriverError REJECTED: not kept.

        CONFLICT where the store has others by now: what `read` returned may be a minute old, or older.
        """
        try:
            self._store.replace(self._secret, self._address, self._node, new, before=before)
        except SecretConflict as error:
            raise DriverError(Failure.CONFLICT, str(error)) from None
        except SecretError as error:
            raise DriverError(Failure.REJECTED, str(error)) from None
        finally:
            with contextlib.suppress(DriverError):
                self.read()
