"""Redfish messages with which a BMC refuses or confirms a request.

The texts are those of DMTF's Base registry and of the vendors' own, which clients match on (pitfalls A4, A7, A8, B1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

BASE = "Base.1.10"


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a registry. `text` has %1, %2 ... for its arguments. `registry` prefixes the id on the wire."""

    status: int
    text: str
    resolution: str
    severity: str = "Critical"
    registry: str = BASE


_RESUBMIT = "Correct the request and resubmit it if the operation failed."

MESSAGES = {
    "Success": Message(200, "The request completed successfully.", "None.", "OK"),
    "NoValidSession": Message(
        401,
        "There is no valid session established with the implementation.",
        "Establish a session before attempting any operations.",
    ),
    "ResourceAtUriUnauthorized": Message(
        401,
        "While accessing the resource at %1, the service received an authorization error.",
        "Ensure that the appropriate access is provided for the service in order for it to access the URI.",
    ),
    "InsufficientPrivilege": Message(
        403,
        "There are insufficient privileges for the account or credentials associated with the current session to "
        "perform the requested operation.",
        "Either abandon the operation or change the associated access rights and resubmit the request.",
    ),
    "ResourceMissingAtURI": Message(
        404, "The resource at the URI %1 was not found.", "Place a valid resource at the URI or correct the URI."
    ),
    "OperationNotAllowed": Message(
        405,
        "The HTTP method is not allowed on this resource.",
        "None.",
    ),
    "PreconditionFailed": Message(
        412,
        "The ETag supplied did not match the ETag required to change this resource.",
        "Try the operation again using the appropriate ETag.",
    ),
    "MalformedJSON": Message(
        400,
        "The request body submitted was malformed JSON and could not be parsed by the receiving service.",
        "Ensure that the request body is valid JSON and resubmit the request.",
    ),
    "QueryNotSupported": Message(
        501, "Querying is not supported by the implementation.", "Remove the query parameters and resubmit the request."
    ),
    "PropertyNotWritable": Message(
        400,
        "The property %1 is a read only property and cannot be assigned a value.",
        "Remove the property from the request body and resubmit the request if the operation failed.",
        "Warning",
    ),
    "PropertyUnknown": Message(
        400, "The property %1 is not in the list of valid properties for the resource.", _RESUBMIT, "Warning"
    ),
    "PropertyValueNotInList": Message(
        400, "The value %1 for the property %2 is not in the list of acceptable values.", _RESUBMIT, "Warning"
    ),
    "PropertyValueTypeError": Message(
        400, "The value %1 for the property %2 is of a different type than the property can accept.", _RESUBMIT
    ),
    "PropertyValueFormatError": Message(
        400, "The value %1 for the property %2 is of a different format than the property can accept.", _RESUBMIT
    ),
    "PropertyMissing": Message(
        400, "The property %1 is a required property and must be included in the request.", _RESUBMIT, "Warning"
    ),
    "ActionParameterMissing": Message(
        400,
        "The action %1 requires the parameter %2 to be present in the request body.",
        "Supply the action with the required parameter in the request body when the request is resubmitted.",
    ),
    "ActionParameterValueNotInList": Message(
        400, "The value %1 for the parameter %2 in the action %3 is not in the list of acceptable values.", _RESUBMIT
    ),
    "ActionParameterValueFormatError": Message(
        400, "The value %1 for the parameter %2 in the action %3 is of a different format than accepted.", _RESUBMIT
    ),
    "ResourceInUse": Message(
        409,
        "The change to the requested resource failed because the resource is in use or in transition.",
        "Remove the condition and resubmit the request if the operation failed.",
        "Warning",
    ),
    "ServiceTemporarilyUnavailable": Message(
        503,
        "The service is temporarily unavailable.  Retry in %1 seconds.",
        "Wait for the indicated retry duration and retry the operation.",
    ),
    "EventSubscriptionLimitExceeded": Message(
        503,
        "The event subscription failed due to the number of simultaneous subscriptions exceeding the limit of the "
        "implementation.",
        "Reduce the number of other subscriptions before trying to establish the event subscription or increase the "
        "limit of simultaneous subscriptions, if supported.",
    ),
    "RAC0218": Message(
        503,
        "The maximum number of user sessions is reached.",
        "Close one or more sessions before opening another session.",
        "Informational",
        "IDRAC.2.8",
    ),
    "PSU501": Message(
        409, "Server is already powered ON.", "No response action is required.", "Informational", "IDRAC.2.8"
    ),
    "PSU502": Message(
        409, "Server is already powered OFF.", "No response action is required.", "Informational", "IDRAC.2.8"
    ),
    "InvalidOperationForSystemState": Message(
        400,
        "The operation was not successful due to the current power state.",
        "The operation is not valid in this power state.",
        "Warning",
        "iLO.2.14",
    ),
    "UnableToModifyDuringSystemPOST": Message(
        400,
        "This property cannot be modified while the system POST is in progress.",
        "Retry the operation after POST has completed.",
        "Warning",
        "iLO.2.14",
    ),
}


class Refusal(Exception):
    """A view refuses the request with a message."""

    def __init__(
        self, message_id: str, *args: str, related: Iterable[str] = (), headers: dict[str, str] | None = None
    ) -> None:
        message = MESSAGES[message_id]
        super().__init__(message_id)
        self.status = message.status
        self.headers = headers or {}
        self.info = extended_info(message_id, *args, related=related)

    def body(self, *, as_list: bool = True) -> dict[str, Any]:
        """Return the error body. `as_list` False: one object where the standard requires a list (A10)."""
        return {
            "error": {
                "code": f"{BASE}.GeneralError",
                "message": "A general error has occurred. See ExtendedInfo for more information.",
                "@Message.ExtendedInfo": [self.info] if as_list else self.info,
            }
        }


def extended_info(message_id: str, *args: str, related: Iterable[str] = ()) -> dict[str, Any]:
    message = MESSAGES[message_id]
    text = message.text
    for number, arg in enumerate(args, 1):
        text = text.replace(f"%{number}", arg)
    return {
        "@odata.type": "#Message.v1_1_1.Message",
        "MessageId": f"{message.registry}.{message_id}",
        "Message": text,
        "MessageArgs": list(args),
        "RelatedProperties": [f"#/{name}" for name in related],
        "Severity": message.severity,
        "Resolution": message.resolution,
    }


SUCCESS = {"@Message.ExtendedInfo": [extended_info("Success")]}
