"""What all kinds share: the strict model, the mark on what is not enforced, and checked scalars.

Scalars keep the text that the author wrote; the resolver converts. Models are fed JSON, in which lists are tuples and
enum values are their words, so that strict validation fits YAML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from reconciler.model.observed import AttributeValue
from reconciler.model.units import parse_duration, parse_nodes, parse_size
from reconciler.spec.addresses import split_authority
from reconciler.spec.characters import check_line, check_text

API_VERSION = "reconciler.dev/v1alpha1"


class Model(BaseModel):
    """Strict, frozen, closed; YAML keys are camelCase."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", alias_generator=to_camel, allow_inf_nan=False)


class Enforced:
    """Marks a field of which this version enforces nothing, or only `values`. Anything else is refused, not ignored."""

    def __init__(self, *values: str) -> None:
        self.values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "x-enforced": list(self.values) or False}

    def _check(self, value: Any) -> Any:
        if value is None or value in self.values:
            return value
        raise PydanticCustomError("not_enforced", "not enforced by this version", {"values": self.values})


NOT_ENFORCED = Enforced()


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


def _reachable(url: str) -> str:
    """A URL of the web, whose host and port are such."""
    split_authority(url.partition("://")[2].partition("/")[0], 443)
    return url


def _positive(text: str) -> None:
    if parse_duration(text) < 0.001:
        raise ValueError(f"{text!r} is no time at all; it must be more than zero")


def _share(text: str) -> None:
    parse_nodes(text, 100)


def _some_nodes(text: str) -> None:
    if parse_nodes(text, 100) == 0:
        raise ValueError(f"{text!r} never allows anything; write at least 1 or 1%")


def _count_as_text(value: Any) -> Any:
    if isinstance(value, float):
        problem = "{value} is not a number of nodes; write a count like 3 or a share like 10%"
        raise PydanticCustomError("share", problem, {"value": value})
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _has_unit(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise PydanticCustomError("unit", "{value} has no unit; write it like 30s, 10m or 480GB", {"value": value})
    return value


def _attribute(value: Any) -> Any:
    if isinstance(value, str):
        check_line(value)
    elif value is not None and not isinstance(value, int):
        raise ValueError("must be text, a whole number, true or false")
    return value


def _inside_tree(text: str) -> None:
    parts = text.split("/")
    if not text or "\\" in text or ".." in parts or "" in parts:
        raise ValueError(f"{text!r} is not a path below the spec directory")


_DURATION = r"(?=.)(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s)?(\d+ms)?"
_SHARE = {"type": ["integer", "string"], "minimum": 0, "pattern": r"^\d+%?$"}
_SOME = {"type": ["integer", "string"], "minimum": 1, "pattern": r"^0*[1-9]\d*%?$"}
_DOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"

Name = Annotated[
    str,
    Matching(
        r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
        "a name; use lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
    ),
]
Text = Annotated[str, Matching(r"\S([^\r\n]*\S)?", "text; it is empty or has blanks around it")]
Lines = Annotated[str, Matching(r"\S([\s\S]*\S)?", "text; it is empty or has blanks around it", lines=True)]
Duration = Annotated[
    str,
    BeforeValidator(_has_unit),
    Checked(parse_duration, pattern=f"^{_DURATION}$", examples=["30s", "10m", "1h30m", "7d"]),
]
PositiveDuration = Annotated[
    str, BeforeValidator(_has_unit), Checked(_positive, pattern=f"^{_DURATION}$", examples=["30s", "10m", "1h30m"])
]
Size = Annotated[
    str,
    BeforeValidator(_has_unit),
    Checked(parse_size, pattern=r"^\d+(\.\d+)?\s*([KMGT]i?)?B$", examples=["480GB", "2TiB"]),
]
NodeShare = Annotated[str, BeforeValidator(_count_as_text), Checked(_share, **_SHARE)]
SomeNodes = Annotated[str, BeforeValidator(_count_as_text), Checked(_some_nodes, **_SOME)]
Sha256 = Annotated[str, Matching(r"[0-9a-f]{64}", "a SHA-256 digest; it has 64 lower-case hex digits")]
WebUrl = Annotated[
    str, Matching(r"https?://[^\s/@?#]+(/[^\s]*)?", "a URL like https://host/path"), AfterValidator(_reachable)
]
TreePath = Annotated[str, Checked(_inside_tree)]
Argv = Annotated[tuple[Lines, ...], Field(min_length=1)]  # the script of `sh -c` has lines
Attribute = Annotated[AttributeValue | None, BeforeValidator(_attribute)]
LabelKey = Annotated[
    str, Matching(rf"((?=[^/]{{1,253}}/){_DOMAIN}/)?{_LABEL}", "a Kubernetes label key like example.com/tier")
]
LabelValue = Annotated[str, Matching(rf"({_LABEL})?", "a Kubernetes label value")]
DomainLabel = Annotated[str, Matching(r"[a-z][a-z0-9-]{0,62}", "a failure-domain label like rack or nvlink-domain")]


class Metadata(Model):
    """What a resource is called."""

    name: Name = Field(description="Name of the resource, unique within its kind.")


class Resource(Model):
    """One YAML document."""

    api_version: Literal["reconciler.dev/v1alpha1"] = Field(description="Version of this format.")
    kind: str = Field(description="Kind of the resource.")
    metadata: Metadata = Field(description="What the resource is called.")
    spec: Any = Field(description="What the resource says.")


Domains = Mapping[DomainLabel, Text]
