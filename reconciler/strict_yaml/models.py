"""The strict base model of files, and the checked texts of their fields.

Models are fed JSON, in which lists are tuples and enum values are their words, so that strict validation fits YAML.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from reconciler.strict_yaml.characters import check_line, check_text


class Model(BaseModel):
    """The base of all models of files: strict, frozen, without unknown keys. Its YAML keys are camelCase."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", alias_generator=to_camel, allow_inf_nan=False, defer_build=True
    )


class Checked:
    """A string that `check` accepts; it raises ValueError for any other. `schema` says the same in JSON Schema.

    `lines` allows several lines. A text that needs only one must be one line, as it goes into commands and reports.
    """

    def __init__(self, check: Callable[[str], object], *, lines: bool = False, **schema: Any) -> None:
        self._accepts = check
        self._characters = check_text if lines else check_line
        self._schema = schema

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), **self._schema}

    def _check(self, text: str) -> str:
        self._characters(text)
        self._accepts(text)
        return text


class Matching(Checked):
    """A string that `pattern` matches as a whole. `what` completes the message "'...' is not"."""

    def __init__(self, pattern: str, what: str, *, lines: bool = False) -> None:
        compiled = re.compile(pattern)

        def check(text: str) -> None:
            if not compiled.fullmatch(text):
                raise ValueError(f"{text!r} is not {what}")

        super().__init__(check, lines=lines, pattern=f"^(?:{pattern})$")


Name = Annotated[
    str,
    Matching(
        r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
        "a name; use lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
    ),
]
Text = Annotated[str, Matching(r"\S([^\r\n]*\S)?", "text; it is empty or has blanks around it")]
Lines = Annotated[str, Matching(r"\S([\s\S]*\S)?", "text; it is empty or has blanks around it", lines=True)]
Argv = Annotated[tuple[Lines, ...], Field(min_length=1)]  # the script of `sh -c` has lines
