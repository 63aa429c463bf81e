"""Map errors of a BMC to kinds of DriverError. Pure.

nothing was sent          UNREACHABLE, or AUTH where the BMC's certificate is not trusted
sent, no proper answer    TIMEOUT | UNREACHABLE | MALFORMED of a read; AMBIGUOUS of a write (pitfall A3)
401, 403                  AUTH
429, 503, "not ready"     BUSY, with the seconds to wait
404, 405, 501             UNSUPPORTED
412                       CONFLICT, after session.patch has tried what A1 knows
other 4xx                 REJECTED, with the BMC's own text
other 5xx                 UNREACHABLE of a read, AMBIGUOUS of a write
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.drivers.redfish.fields import Document, Unknown, member, objects, quote, text, texts
from reconciler.model.errors import SILENT_BECAUSE, DriverError, Failure
from reconciler.model.vocab import UnknownReason

_DEEPEST_WAIT_S = 3600.0
# Temporary refusals: message id -> seconds after which to ask again.
_TEMPORARY: Mapping[str, float] = {
    "SYS518": 20.0,  # A4: iDRAC reloads
    "InvalidOperationForSystemState": 10.0,  # A7: iLO, soon after the previous change
    "UnableToModifyDuringSystemPOST": 5.0,  # A8
    "ResourceInUse": 10.0,  # A7
    "ResourceInStandby": 10.0,
    "ServiceTemporarilyUnavailable": 10.0,  # A4
    "ServiceInUnknownState": 10.0,
    "ServiceShuttingDown": 60.0,
    "RAC0679": 30.0,  # D10: another job runs
    "RAC0218": 60.0,  # B1: all sessions are taken
    "SessionLimitExceeded": 60.0,  # B1
    "CreateLimitReachedForResource": 60.0,  # B1, in other words
}
SESSIONS_TAKEN = frozenset({"RAC0218", "SessionLimitExceeded", "CreateLimitReachedForResource"})
_SUBSCRIPTIONS_TAKEN = "EventSubscriptionLimitExceeded"  # OpenBMC said it with 403 for a while (openbmc/bmcweb#150)
SESSION_GONE = frozenset({"NoValidSession", "InvalidSession"})
# A 403 about the request, not the account: the account works, and another login would change nothing (B3).
_ABOUT_REQUEST = frozenset({"InsufficientPrivilege", "InsufficientPrivilegeForOperation", "OemLicenseNotPassed"})
# Of Base, where a BMC takes the password and then nothing but another one (DSP0266, "Password management"): no refusal.
_PASSWORD_DUE = "PasswordChangeRequired"


def reason_of(error: DriverError) -> UnknownReason:
    """Return the reason that a snapshot gives for a failed read.

    A web server answers 503 also while what is behind it has died: no answer unless it says that sessions are taken.
    """
    if isinstance(error, HttpError) and error.status == 503 and not error.ids & SESSIONS_TAKEN:
        return UnknownReason.UNREACHABLE
    return SILENT_BECAUSE[error.kind]


@dataclass(frozen=True, slots=True)
class Message:
    """An entry of ExtendedInfo. `id` is the last part of the MessageId, which registries don't renumber."""

    id: str
    text: str
    args: tuple[str, ...] = ()


class HttpError(DriverError):
    """An HTTP error that a BMC answered."""

    def __init__(
        self,
        kind: Failure,
        detail: str,
        *,
        status: int,
        messages: tuple[Message, ...],
        retry_after: float | None = None,
    ) -> None:
        super().__init__(kind, detail, retry_after=retry_after)
        self.status = status
        self.messages = messages

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(message.id for message in self.messages)

    @property
    def of_account(self) -> bool:
        """Say whether the BMC refuses the session or the account. A 403 may be about the resource."""
        if self.kind is not Failure.AUTH:
            return bool(self.ids & SESSION_GONE)
        return not self.ids & {*_ABOUT_REQUEST, _PASSWORD_DUE}

    def mentions(self, word: str) -> bool:
        """Say whether the BMC complains about `word`, a parameter's name."""
        return any(word in message.text or word in message.args for message in self.messages)


class ConnectionFailed(Exception):
    """Raised by the transport for every failure. `sent`: the request may have reached the BMC."""

    def __init__(self, kind: Failure, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.sent = sent


def decode(raw: bytes) -> Document:
    """Decode a JSON object. Unknown when it is malformed."""
    try:
        found = json.loads(raw, parse_constant=lambda word: word)  # NaN is not JSON: a text, so no number
    except (ValueError, RecursionError) as error:
        start = quote(raw[:60].decode("utf-8", "replace"))
        raise Unknown(f"the answer is not JSON ({quote(error)}): {start!r}") from None
    if not isinstance(found, dict):
        raise Unknown(f"the answer is not a JSON object but {type(found).__name__}")
    return found


def messages_of(body: Document) -> tuple[Message, ...]:
    """Return the entries of ExtendedInfo, which is in `error` or at the top, as a list, an object or a text (A10)."""
    error = member(body, "error")
    found: list[Message] = []
    for holder in (error, body):
        info = holder.get("@Message.ExtendedInfo")
        for entry in objects({"list": info if isinstance(info, list) else [info]}, "list"):
            id_ = text(entry, "MessageId") or ""
            words = text(entry, "Message") or text(entry, "Resolution") or id_
            found.append(Message(id_.rsplit(".", 1)[-1], quote(words), texts(entry, "MessageArgs")))
    if not found and (text(error, "message") or text(error, "code")):
        code = text(error, "code") or ""
        found.append(Message(code.rsplit(".", 1)[-1], quote(text(error, "message") or code)))
    return tuple(found)


def http_error(
    method: str, path: str, status: int, raw: bytes, headers: Mapping[str, str], *, confidential: bool = False
) -> HttpError:
    """Return the error of a response. `confidential`: leaves out texts, as BMCs quote the values that they refuse."""
    try:
        messages = messages_of(decode(raw))
    except Unknown:
        messages = ()
    kind, hint = _kind(method, status, messages)
    words = "; ".join(message.id if confidential else message.text for message in messages[:3])
    detail = f"{method} {path}: HTTP {status}" + (f": {words}" if words else "") + (f"; {hint}" if hint else "")
    wait = _retry_after(headers, messages) if kind is Failure.BUSY else None
    return HttpError(kind, detail, status=status, messages=messages, retry_after=wait)


def _kind(method: str, status: int, messages: tuple[Message, ...]) -> tuple[Failure, str]:
    if any(message.id == _SUBSCRIPTIONS_TAKEN for message in messages):
        return Failure.BUSY, "delete subscriptions of its EventService that nobody needs"
    if any(_temporary(message) is not None for message in messages) or status in (429, 503):
        return Failure.BUSY, "the BMC is busy or restarting: try again later"
    match status:
        case 403 if any(message.id == _PASSWORD_DUE for message in messages):
            return Failure.AUTH, "give the account another password by the BMC's own pages, and then the secret"
        case 401 | 403:
            return Failure.AUTH, "" if messages else "the BMC refuses us: check the account and its privileges"
        case 404 | 405 | 501:
            return Failure.UNSUPPORTED, ""
        case 412:
            return Failure.CONFLICT, "the resource changed meanwhile: read it again"
        case _ if status >= 500:
            broken = "an internal error of the BMC: try again, or reset the BMC"
            return (Failure.UNREACHABLE if method == "GET" else Failure.AMBIGUOUS), broken
        case _:
            return Failure.REJECTED, ""


def _temporary(message: Message) -> float | None:
    if message.id in _TEMPORARY:
        return _TEMPORARY[message.id]
    lower = message.text.casefold()
    return 10.0 if "not ready" in lower or "notready" in message.id.casefold() else None


def _retry_after(headers: Mapping[str, str], messages: tuple[Message, ...]) -> float | None:
    given = next((value for name, value in headers.items() if name.casefold() == "retry-after"), "")
    if given.strip().isascii() and given.strip().isdigit():
        return min(float(given), _DEEPEST_WAIT_S)
    return next((wait for message in messages if (wait := _temporary(message)) is not None), None)


def connection_error(method: str, path: str, failed: ConnectionFailed) -> DriverError:
    """Return the error of a request without a proper answer: AMBIGUOUS for a write that may have arrived."""
    unsure = failed.sent and method != "GET"
    return DriverError(Failure.AMBIGUOUS if unsure else failed.kind, f"{method} {path}: {failed.detail}")
