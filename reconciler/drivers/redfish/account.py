"""The password of the account that we log in with (DSP0268: AccountService, ManagerAccount).

Until a new password is proved, the secret holds it and the one before, so that whoever is interrupted can log in: the
session tries the new one and then the other. The account stays the same one, in whichever slot a make has it. Nobody
may be locked out by our tries: at most two are wrong in a row, and a BMC that locks after fewer is left alone.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from reconciler.drivers.redfish.fields import Confidential, Document, Unknown, integer, need_link, text
from reconciler.drivers.redfish.session import Resource, Session
from reconciler.drivers.redfish.tree import Tree
from reconciler.drivers.secrets import Credentials, Secret
from reconciler.model.errors import DriverError, Failure
from reconciler.model.password_port import REFUSALS

LONG: Final = 20  # characters; IPMI 2.0, 22.30 "Set User Password", has no room for more, and some makes share them
SHORT: Final = 12
WRONG_TRIES: Final = 2  # logins that may be refused in a row: with the new password, and with the one before
_MARKS: Final = "-_."  # each make allows these, which no shell and no URL changes
_CLASSES: Final = (string.ascii_lowercase, string.ascii_uppercase, string.digits, _MARKS)


Replace = Callable[[Credentials, Credentials], None]  # those that the store has, by new ones


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a BMC for passwords; None: it does not tell, or has none. `locks_after`: so many wrong ones."""

    shortest: int | None
    longest: int | None
    locks_after: int | None

    @classmethod
    def of(cls, service: Document) -> Rules:
        """Read them from an AccountService, in which 0 stands for none."""
        names = ("MinPasswordLength", "MaxPasswordLength", "AccountLockoutThreshold")
        return cls(*(integer(service, name) or None for name in names))

    def length(self) -> int:
        """Return how long a new password is to be. Raise DriverError where none is safe."""
        if self.locks_after is not None and self.locks_after <= WRONG_TRIES:
            why = (
                f"the BMC locks an account after {self.locks_after} refused logins, and an interrupted change may cost"
            )
            raise DriverError(Failure.UNSUPPORTED, f"{why} {WRONG_TRIES}: raise its AccountLockoutThreshold")
        length = max(LONG, self.shortest or 0)
        length = length if self.longest is None else min(length, self.longest)
        if length < SHORT or length < (self.shortest or 0):
            raise DriverError(Failure.UNSUPPORTED, f"the BMC takes no password of more than {length} characters")
        return length


def new_password(length: int) -> str:
    """Return a random password with characters of each class, which many makes demand. It begins with a letter."""
    every = "".join(_CLASSES)
    while True:
        found = secrets.choice(string.ascii_letters) + "".join(secrets.choice(every) for _ in range(length - 1))
        if all(set(found) & set(kind) for kind in _CLASSES):
            return found


class OwnAccount:
    """The account that we log in with. `read`, `replace`: its credentials in the secrets store."""

    def __init__(self, tree: Tree, read: Callable[[], Credentials], replace: Replace) -> None:
        self._tree = tree
        self._read = read
        self._replace = replace

    @property
    def _session(self) -> Session:
        return self._tree.session

    def stage(self) -> None:
        """Put a new password into the secret, beside the one of now. One that is there already is kept."""
        found = self._read()
        if found.previous is not None:
            return
        service = self._service()
        self._own(service, found)  # before anything is written: it may be an account of a directory
        password = Secret(new_password(Rules.of(service.body).length()))
        self._replace(found, Credentials(found.username, password, previous=found.password))

    def change(self) -> None:
        """Give the BMC the new password. One that lets us in by it has it already, though it refuses it as used."""
        found = self._staged()
        self._session.root()  # with a session, it is known which password the BMC takes
        if self._session.is_of(found):
            return
        try:
            self._give(found)
        except DriverError as error:
            if error.kind not in REFUSALS or not self._accepts(found):
                raise

    def is_proved(self) -> bool:
        """Log in anew with the new password; say whether the BMC let us."""
        return self._accepts(self._staged())

    def keep(self) -> None:
        """Take the password before out of the secret, and end the session that was opened with it."""
        found = self._read()
        if found.previous is not None:
            self._replace(found, Credentials(found.username, found.password))
        self._session.close()

    def put_back(self) -> None:
        """Give the BMC the password before, prove it, and take the new one out of the secret.

        Raise DriverError where the BMC lets us in by neither: the secret keeps both then.
        """
        found = self._staged()
        assert found.previous is not None
        before = Credentials(found.username, found.previous)
        try:
            self._give(before)
        except DriverError as error:
            if error.kind not in (Failure.AMBIGUOUS, *REFUSALS):  # it may have that one already: the login tells
                raise
        if not self._accepts(before):
            why = "the BMC lets us in by neither the new password nor the one before; the secret has both"
            raise DriverError(Failure.AUTH, why)
        self._replace(found, before)

    def _staged(self) -> Credentials:
        found = self._read()
        if found.previous is None:
            raise DriverError(Failure.REJECTED, "the secret has no new password beside the one before")
        return found

    def _accepts(self, found: Credentials) -> bool:
        """Log in anew. Nothing is asked before: with Basic, each request has a password that may be gone by now."""
        return self._session.accepts(found, self._where())

    def _where(self) -> str:
        try:
            return need_link(self._session.root(), "AccountService")
        except Unknown as missing:
            raise DriverError(Failure.UNSUPPORTED, str(missing)) from None

    def _service(self) -> Resource:
        return self._tree.get(self._where())

    def _own(self, service: Resource, found: Credentials) -> Resource:
        """Read the account that we log in with. Makes keep empty slots (Dell) and others' accounts beside it."""
        for account in self._tree.members(need_link(service.body, "Accounts")):
            if text(account.body, "UserName") == found.username:
                return self._session.get(account.path)  # with its ETag
        why = "the BMC lists no account of the name that we log in with: it may come from a directory"
        raise DriverError(Failure.UNSUPPORTED, why)

    def _give(self, found: Credentials) -> None:
        account = self._own(self._service(), found)
        self._session.was_given(found)
        self._session.patch(account, Confidential(Password=found.password.reveal()))
