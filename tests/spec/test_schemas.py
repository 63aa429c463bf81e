"""The published JSON Schemas: up to date, complete, and in agreement with what the loader accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from reconciler.model.documents import NAMES, dump
from reconciler.spec.kinds import KINDS, Model
from reconciler.spec.schema import all_schemas, render_schema, write_schemas
from reconciler.strict_yaml.parse import parse_yaml
from tests.spec.example import FILES, changed
from tests.spec.test_documents import DOCUMENTS
from tests.spec.test_problems import cases

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = all_schemas()


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_up_to_date(name: str) -> None:
    path = ROOT / "schemas" / name
    assert path.is_file(), "run: reconciler schema --write schemas"
    assert path.read_text() == render_schema(SCHEMAS[name]), "run: reconciler schema --write schemas"


def test_no_schema_is_left_over() -> None:
    assert {path.name for path in (ROOT / "schemas").iterdir()} == set(SCHEMAS)


def test_writing_schemas(tmp_path: Path) -> None:
    assert {path.name for path in write_schemas(tmp_path / "new")} == set(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def models() -> list[type[BaseModel]]:
    found, todo = set(), [Model]
    while todo:
        for child in todo.pop().__subclasses__():
            if child not in found and child.__module__.startswith("reconciler.spec.kinds"):
                found.add(child)
                todo.append(child)
    return sorted(found, key=lambda model: model.__name__)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_field_and_model_says_what_it_means(model: type[BaseModel]) -> None:
    assert model.__doc__
    for name, entry in model.model_fields.items():
        assert entry.description, f"{model.__name__}.{name}"
        assert entry.description.endswith((".", "...")), f"{model.__name__}.{name}"


def resources(files: dict[str, str]) -> list[tuple[str, Any]]:
    return [
        (name, document.data)
        for name, text in files.items()
        if name.endswith(".yaml")
        for document in parse_yaml(text, name)[0]
    ]


def schema_of(data: Any) -> dict[str, Any]:
    return next(schema for schema in SCHEMAS.values() if schema["title"] == data["kind"])


WORKED = {path.name: path.read_text() for path in (ROOT / "fleet-spec").rglob("*.yaml")}


@pytest.mark.parametrize(("name", "data"), [*resources(dict(FILES)), *resources(WORKED)])
def test_the_examples_fit_their_schemas(name: str, data: Any) -> None:
    jsonschema.validate(data, schema_of(data), jsonschema.Draft202012Validator)


def test_editors_find_the_schema_of_every_example_file() -> None:
    for path in (ROOT / "fleet-spec").rglob("*.yaml"):
        first, *_ = path.read_text().split("\n")
        assert first.startswith("# yaml-language-server: $schema="), path
        schema = (path.parent / first.partition("$schema=")[2]).resolve()
        assert schema.parent == ROOT / "schemas", path
        for document in parse_yaml(path.read_text(), path.name)[0]:
            assert SCHEMAS[schema.name]["title"] == document.data["kind"]


STRUCTURAL = ("unknown key", "' is missing", "is not one of", "must be text", "must be at", "never allows", "a SHA-256")


@pytest.mark.parametrize(("file", "old", "new", "expected"), cases())
def test_what_editors_can_see_the_loader_refuses_too(file: str, old: str, new: str, expected: list[str]) -> None:
    """A schema is weaker than the loader, never stricter; and it knows what is structure."""
    documents = resources({name: data.decode() for name, data in changed((file, old, new)).items()})
    broken = [
        found.message
        for _, data in documents
        if isinstance(data, dict) and data.get("kind") in KINDS
        for found in jsonschema.Draft202012Validator(schema_of(data)).iter_errors(data)
    ]
    errors = [line for line in expected if not line.startswith("warning")]
    deeper = any(".csv" in line or ".args." in line for line in errors)  # of which schemas know nothing
    if broken:
        assert errors
    if not deeper and any(phrase in line for line in errors for phrase in STRUCTURAL):
        assert broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: type(document).__name__)
def test_what_is_written_fits_its_schema(document: Any) -> None:
    schema = SCHEMAS[NAMES[type(document)].replace(" ", "-") + ".json"]
    jsonschema.validate(json.loads(dump(document)), schema, jsonschema.Draft202012Validator)


def test_what_is_not_enforced_is_marked() -> None:
    def marks(schema: Any) -> list[Any]:
        if isinstance(schema, list):
            return [mark for part in schema for mark in marks(part)]
        if not isinstance(schema, dict):
            return []
        own = [schema["x-enforced"]] if "x-enforced" in schema else []
        return own + [mark for part in schema.values() for mark in marks(part)]

    assert marks(SCHEMAS["fleet.json"]) == []
    assert marks(SCHEMAS["node-pool.json"]) == [False]  # hostKey
    assert marks(SCHEMAS["acceptance-profile.json"]) == []
    assert marks(SCHEMAS["hardware-profile.json"]) == []
