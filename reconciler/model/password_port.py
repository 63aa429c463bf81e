"""The part of a Bmc that changes the password of the account that we log in with. No password passes through it.

The secret has the new password and the one before from `stage_password` on, until `keep_password` or
`put_password_back` ends that: whoever is interrupted in between can log in, and goes on with the same new password.
"""

from __future__ import annotations

from typing import Final, Protocol

from reconciler.model.errors import Failure

# A BMC that refuses a new password says so in any of these: 400, 403, or 405 and 501 (drivers/redfish/failures.py).
REFUSALS: Final = (Failure.REJECTED, Failure.AUTH, Failure.UNSUPPORTED)


class PasswordPort(Protocol):
    """Each write raises DriverError as those of a Bmc do."""

    async def stage_password(self) -> None:
        """Put a new password for our account into its secret, beside the one of now, and read it back. Idempotent.

        Nothing is changed on the BMC. UNSUPPORTED where its secret can't be replaced, or the BMC has no such account or
        no safe rules; REJECTED where the secret was not kept.
        """

    async def change_password(self) -> None:
        """Give the BMC the new password of its secret. Idempotent: one that lets us in by it has it already."""

    async def is_password_proved(self) -> bool:
        """Log in anew with the new password, once, and return whether the BMC let us."""

    async def keep_password(self) -> None:
        """Take the password before out of the secret, for good. Idempotent."""

    async def put_password_back(self) -> None:
        """Give the BMC the password before, prove it, and take the new one out of the secret.

        AUTH: the BMC lets us in by neither. The secret keeps both.
        """
