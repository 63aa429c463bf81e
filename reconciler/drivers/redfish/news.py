"""Tell which events of a BMC may be a sign of illness. Pure."""

from __future__ import annotations

import json

from reconciler.drivers.redfish.fields import Document, objects, text


def is_news(data: bytes) -> bool:
    """Return whether an event may be a sign of illness. One that can't be understood may be.

    What is OK is not: BMCs tell of every login, and reading them would make the next event.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return True
    if not isinstance(document, dict):
        return True
    if str(document.get("@odata.type", "")).startswith("#MetricReport."):
        return False
    return any(map(_is_ill, objects(document, "Events"))) or "Events" not in document


def _is_ill(event: Document) -> bool:
    severity = text(event, "MessageSeverity") or text(event, "Severity") or ""
    return severity.casefold() not in ("ok", "informational")
