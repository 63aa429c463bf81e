"""NetBox over its REST API: the devices of one query, from all its pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from reconciler.drivers.forge.http import Rest
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.ports import Clock
from reconciler.model.printable import shown_url

_PAGES: Final = 1000
_LIMIT: Final = 1000  # NetBox's MAX_PAGE_SIZE, unless its operator has another; without a limit it is 50
_TRIES: Final = 2  # somebody waits
_OURS: Final = ("ordering", "offset")  # parameters that say which page
_BEARER: Final = "nbt_"  # a token of NetBox 4.5 and later: https://netboxlabs.com/docs/netbox/integrations/rest-api/


def _path(query: SplitResult, after: int) -> str:
    """Return the path of the page of devices with ids above `after`. 0 = the first.

    Pages by offset shift when a device leaves the query meanwhile, and one that stays is then on none of them. By id
    each that stays is on one: https://github.com/auroraresearchlab/netbox-dns/issues/294.
    """
    own = [pair for pair in parse_qsl(query.query, keep_blank_values=True) if pair[0] not in _OURS]
    page = [("ordering", "id")] + [("id__gt", str(after))] * (after > 0)
    page += [("limit", str(_LIMIT))] * ("limit" not in dict(own))
    return f"{query.path}?{urlencode([*own, *page])}"


def _last(page: Sequence[Any], after: int, url: str) -> int:
    """Return the id of the last device of a page. Raise DriverError where they are not in the order of ids."""
    for device in page:
        own = device.get("id") if isinstance(device, dict) else None
        if not isinstance(own, int) or own <= after:
            problem = f"{shown_url(url)}: its devices have no ids, or are not in the order of ids, so some may lack"
            raise DriverError(Failure.MALFORMED, problem)
        after = own
    return after


async def read_devices(url: str, token: str, clock: Clock) -> list[Any]:
    """Return the devices that a query such as https://netbox/api/dcim/devices/?role=gpu answers with.

    Raise UsageError for an address or a token that is none, and DriverError for what NetBox refuses.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError(f"{shown_url(url)} is no address") from None
    scheme = "Bearer" if token.startswith(_BEARER) else "Token"
    headers = {"Accept": "application/json", "Authorization": f"{scheme} {token.strip()}"}
    rest = Rest(f"{parts.scheme}://{parts.netloc}", token, clock, headers=headers, tries=_TRIES)
    found, after = list[Any](), 0
    try:
        for _ in range(_PAGES):
            page = await rest.call("GET", _path(parts, after))
            if not isinstance(page, dict) or not isinstance(page.get("results"), list):
                raise DriverError(Failure.MALFORMED, f"{shown_url(url)}: no list; give the query of /api/dcim/devices/")
            found += page["results"]
            after = _last(page["results"], after, url)
            if not page.get("next"):
                return found
        raise DriverError(Failure.MALFORMED, f"{shown_url(url)}: more than {_PAGES} pages")
    finally:
        await rest.close()
