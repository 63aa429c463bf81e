"""The strict model of a file, and the checked texts that its fields are made of.

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
    """Strict, frozen, closed; YAML keys are camelCase."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", alias_generator=to_camel, allow_inf_nan=False)


class Checked:
    """A string that `check` accepts by not raising ValueError. `schema` tells editors as much as JSON Schema can.

    `lines`: it may have several; what has no need of them is one line, as it goes into files, commands and reports.
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
    """A string that `pattern` matches from end to end. `what` completes "... is not"."""

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
