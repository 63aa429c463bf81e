"""Write JSON Schemas (draft 2020-12) of all files that people and programs exchange with the reconciler.

`reconciler schema --write` writes schemas/*.json; editors find them by the modeline of a spec file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from reconciler.model.documents import NAMES, document_schema
from reconciler.model.install import CONTRACT
from reconciler.spec.kinds import KINDS
from reconciler.spec.kinds.signals import SignalTable

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def all_schemas() -> dict[str, dict[str, Any]]:
    """Return all schemas by file name."""
    kinds = {_file_name(name): kind.model_json_schema() for name, kind in KINDS.items()}
    documents = {_file_name(name): document_schema(kind) for kind, name in NAMES.items()}
    contract = {f"{name}.json": kind.model_json_schema() for name, kind in CONTRACT.items()}
    table = {"signals.json": SignalTable.model_json_schema()}
    return {
        name: {"$schema": DRAFT, **schema} for name, schema in sorted((kinds | documents | contract | table).items())
    }


def render_schema(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write_schemas(directory: Path) -> list[Path]:
    """Write every schema below `directory`, and return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, schema in all_schemas().items():
        path = directory / name
        path.write_text(render_schema(schema), encoding="utf-8")
        paths.append(path)
    return paths


def _file_name(name: str) -> str:
    """Return a file name: GoldenImage -> golden-image.json, drift report -> drift-report.json."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])| ", "-", name).lower() + ".json"
