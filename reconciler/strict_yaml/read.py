"""Check a document against a model, and word pydantic's errors with their places in the file.

A document with errors is validated again without the faulty keys, so that the rest of it can still be checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from reconciler.model.errors import Diagnostic, did_you_mean
from reconciler.strict_yaml.parse import Document, Steps, UnreadableFile, parse_yaml, show_path

M = TypeVar("M", bound=BaseModel)


class InvalidFile(Exception):
    """A file does not hold the document that it should. The message has one line for each problem."""


def read_model(model: type[M], path: Path) -> M:
    """Return the only document of a file as `model`. Raise InvalidFile for a file that can't be read or has errors."""
    try:
        return model_of(model, path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError:
        raise InvalidFile(f"{path}: not UTF-8 text") from None


def model_of(model: type[M], text: str, file: str) -> M:
    """Return the only document of a text as `model`; `file` names it in positions. Raise InvalidFile for its errors."""
    try:
        documents, problems = parse_yaml(text, file)
    except UnreadableFile as error:
        raise InvalidFile(str(error.diagnostic)) from None
    if len(documents) != 1:
        raise InvalidFile(f"{file}: holds {len(documents)} documents, not one")
    contents, found = parse_model(model, documents[0])
    if contents is None or problems or found:
        raise InvalidFile("\n".join(map(str, [*problems, *found])))
    return contents


def parse_model(model: type[M], document: Document) -> tuple[M | None, list[Diagnostic]]:
    """Return the document as `model`, and its problems.

    With problems the model holds what remains without the faulty keys; None when nothing valid remains.
    """
    problems: list[Diagnostic] = []
    data, gone = document.data, set[Steps]()
    for _ in range(3):  # once a key is taken out, a check of the whole may fail
        try:
            return model.model_validate_json(json.dumps(data)), problems
        except ValidationError as error:
            faults = [fault for fault in error.errors(include_url=False) if _steps(fault) not in gone]
            gone |= {_steps(fault) for fault in faults}
            wholes = {steps[:length] for steps in gone for length in range(len(steps))}
            # An error of a whole that follows from a part taken out would only repeat the first.
            problems += [_explain(fault, model, document) for fault in faults if _steps(fault) not in wholes]
            data = _without(gone, document.data)
    return None, problems


def _without(places: Iterable[Steps], data: Any) -> Any:
    """Copy `data` without the keys at `places`. Elements of lists stay, as their index gives their position."""
    copy = json.loads(json.dumps(data))
    for steps in places:
        parent: Any = copy
        for step in steps[:-1]:
            parent = parent.get(step, {}) if isinstance(parent, dict) else parent[step]
        if isinstance(parent, dict) and steps:
            parent.pop(steps[-1], None)
    return copy


def _steps(fault: Mapping[str, Any]) -> Steps:
    """Return the steps to an error. pydantic adds "[key]" where the key of a mapping is wrong."""
    steps: Steps = fault["loc"]
    return steps[:-1] if steps and steps[-1] == "[key]" else steps


_BOUNDS: Final = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_SHAPES: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _explain(fault: Mapping[str, Any], model: type[BaseModel], document: Document) -> Diagnostic:
    steps, kind, value, context = _steps(fault), fault["type"], fault["input"], fault.get("ctx", {})
    at, path = document.at(steps), show_path(steps)
    if kind == "missing":
        return Diagnostic(document.at(steps[:-1], key=True), show_path(steps[:-1]), f"key {steps[-1]!r} is missing")
    if kind == "extra_forbidden":
        hint = did_you_mean(str(steps[-1]), _known_keys(model, steps[:-1]))
        at = document.at(steps, key=True)
        return Diagnostic(at, show_path(steps[:-1]), f"unknown key {steps[-1]!r}", hint)
    if kind in {"enum", "literal_error"}:
        words = re.findall(r"'([^']*)'", context["expected"])
        if not words:
            return Diagnostic(at, path, f"must be {context['expected'].lower()}, not {describe(value)}")
        problem = f"{value!r} is not {words[0]!r}" if len(words) == 1 else f"{value!r} is not one of {', '.join(words)}"
        hint = did_you_mean(value, words) if isinstance(value, str) and len(words) > 1 else ""
        return Diagnostic(at, path, problem, hint if hint.startswith("did") else "")
    if kind == "value_error":
        return Diagnostic(document.at(steps, key=fault["loc"] != steps), path, str(context["error"]))
    if kind in _SHAPES:
        quote = kind == "string_type" and isinstance(value, int | float)
        return Diagnostic(
            at, path, f"must be {_SHAPES[kind]}, not {describe(value)}", "put it in quotes" if quote else ""
        )
    if kind in _BOUNDS:
        name, words_ = _BOUNDS[kind]
        return Diagnostic(at, path, f"must be {words_} {context[name]:g}, not {value}")
    if kind == "too_short":
        return Diagnostic(at, path, "must not be empty")
    return Diagnostic(at, path, str(fault["msg"]).replace("Input should", "must"))


def describe(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"{value!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def _known_keys(model: type[BaseModel], steps: Steps) -> list[str]:
    """Return the keys that the mapping at `steps` may have."""
    current: Any = model
    for step in steps:
        if _is_model(current):
            current = next((entry.annotation for entry in current.model_fields.values() if entry.alias == step), None)
        else:  # a mapping or a list: the type of its values
            current = get_args(current)[-1 if isinstance(step, str) else 0] if get_args(current) else None
        current = _unwrap(current)
    return [str(entry.alias) for entry in current.model_fields.values()] if _is_model(current) else []


def _unwrap(annotation: Any) -> Any:
    """Return `M` for `Annotated[M, ...]` and `M | None`."""
    while get_origin(annotation) in {Annotated, Union, UnionType}:
        annotation = get_args(annotation)[0]
    return annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
