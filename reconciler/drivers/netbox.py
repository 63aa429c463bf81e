"""NetBox over its REST API: the devices of one query, from all its pages."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from reconciler.drivers.forge.http import Rest
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.ports import Clock
from reconciler.model.printable import shown_url

_PAGES: Final = 1000
_TRIES: Final = 2  # somebody waits
_BEARER: Final = "nbt_"  # a token of NetBox 4.5 and later: https://netboxlabs.com/docs/netbox/integrations/rest-api/


def _whole(found: list[Any], count: Any, url: str) -> list[Any]:
    """Return the devices of all pages. Raise DriverError where NetBox counts others: they changed meanwhile."""
    if isinstance(count, int) and len(found) != count:
        problem = f"{shown_url(url)}: {len(found)} devices on its pages, and it counts {count}"
        raise DriverError(Failure.MALFORMED, problem)
    return found


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
    path, found = parts.path + (f"?{parts.query}" if parts.query else ""), list[Any]()
    try:
        for _ in range(_PAGES):
            page = await rest.call("GET", path)
            if not isinstance(page, dict) or not isinstance(page.get("results"), list):
                raise DriverError(Failure.MALFORMED, f"{shown_url(url)}: no list; give the query of /api/dcim/devices/")
            found += page["results"]
            following = page.get("next")
            if not following:
                return _whole(found, page.get("count"), url)
            try:
                to = urlsplit(str(following))
            except ValueError:
                raise DriverError(Failure.MALFORMED, f"{shown_url(url)}: its next page has no address") from None
            path = f"{to.path}?{to.query}"  # of the same host: behind a proxy NetBox calls itself otherwise
        raise DriverError(Failure.MALFORMED, f"{shown_url(url)}: more than {_PAGES} pages")
    finally:
        await rest.close()
