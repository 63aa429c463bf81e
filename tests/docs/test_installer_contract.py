"""The page of the install contract: its examples are documents of the contract, its tables are those of the code."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from aiohttp.web import AbstractRoute

from reconciler.drivers.installer import calls
from reconciler.drivers.installer.calls import Calls
from reconciler.model.install import (
    CONTRACT,
    CREDENTIAL_SIZE,
    FORMAT,
    MARKER,
    AttemptCredential,
    ContractDocument,
    InstallPhase,
    fill_credential,
    load_contract,
)
from tests.conftest import ROOT
from tests.docs.pages import blocks, page, table, text

PAGE = page("reference/installer-contract")


def examples() -> list[tuple[str, str]]:
    """Return each example with the name of the contract's document that it is, by its keys."""
    found = []
    for block in blocks("json", text(PAGE)):
        keys = set(json.loads(block))
        [name] = [name for name, kind in CONTRACT.items() if required(kind) <= keys <= set(kind.model_fields)]
        found.append((name, block))
    return found


def required(kind: type[ContractDocument]) -> set[str]:
    return {name for name, field in kind.model_fields.items() if field.is_required()}


@pytest.mark.parametrize(("name", "block"), examples())
def test_an_example_fits_the_published_schema_and_is_read(name: str, block: str) -> None:
    schema = json.loads((ROOT / "schemas" / f"{name}.json").read_text())
    jsonschema.validate(json.loads(block), schema)
    load_contract(CONTRACT[name], block)


def test_every_document_has_an_example() -> None:
    assert {name for name, _ in examples()} == set(CONTRACT)
    whole = {name: json.loads(block) for name, block in examples()}
    assert set(whole["install-document"]) == set(CONTRACT["install-document"].model_fields)
    assert whole["install-document"]["format"] == FORMAT


def test_the_calls_are_those_that_the_server_answers() -> None:
    told = set()
    for call, *_ in table(PAGE, "call"):
        [path] = re.findall(r"/(?:TOKEN|boot/MAC)/[\w./]+", call)
        told |= {(method, path) for method in re.findall(r"GET|HEAD|POST", call)}
    routes = Calls.application(Calls.__new__(Calls)).router.routes()
    served = {(route.method, canonical(route)) for route in routes}
    assert told == {call for call in served if call != ("HEAD", "/TOKEN/install.json")}


def canonical(route: AbstractRoute) -> str:
    path = route.resource.canonical if route.resource is not None else ""
    return path.replace("{token}", "TOKEN").replace("{mac}", "MAC")


def test_the_phases_and_figures_are_the_codes() -> None:
    assert [row[0].strip("`") for row in table(PAGE, "phase")] == [phase.value for phase in InstallPhase]
    contents = text(PAGE)
    assert f"placeholder of {CREDENTIAL_SIZE} bytes" in contents
    assert f"`{MARKER.decode()}`" in contents
    assert f"{calls.SMALL_BYTES >> 10} KiB at most" in contents
    assert f"{calls.LARGE_BYTES >> 20} MiB at most" in contents
    assert f"more than {calls.BODY_S:g} seconds" in contents
    [attempt] = [block for name, block in examples() if name == "install-attempt"]
    assert len(fill_credential(load_contract(AttemptCredential, attempt))) == CREDENTIAL_SIZE
