"""Find the name of a spec's fleet even when the spec is invalid: a stop must not wait until somebody corrects it."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from reconciler.spec.load import load_documents
from reconciler.spec.tree import SpecTree
from reconciler.strict_yaml.models import Name

_NAME: TypeAdapter[str] = TypeAdapter(Name)


def fleet_name(directory: Path) -> str | None:
    """Return the name of the only Fleet below `directory`; None when there is no readable one, or more than one."""
    documents, _ = load_documents(SpecTree(directory, str(directory)))
    data = [document.data for document in documents if isinstance(document.data, dict)]
    metadata = [one.get("metadata") for one in data if one.get("kind") == "Fleet"]
    names = {one["name"] for one in metadata if isinstance(one, dict) and isinstance(one.get("name"), str)}
    try:
        return _NAME.validate_python(names.pop()) if len(names) == 1 else None
    except ValidationError:
        return None
