"""The scalars that all kinds share, and how they are checked.

Scalars keep the text that the author wrote; `resolve` converts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
)
from pydantic_core import PydanticCustomError

from reconciler.model.addresses import split_authority
from reconciler.model.units import parse_duration, parse_nodes, parse_size
from reconciler.model.values import AttributeValue
from reconciler.strict_yaml.characters import check_line
from reconciler.strict_yaml.models import Checked, Matching, Model, Name, Text

API_VERSION = "reconciler.dev/v1alpha1"
_GROUP = "reconciler.dev/"


def _reachable(url: str) -> str:
    """Return a URL whose host and port are valid. Raise ValueError otherwise."""
    split_authority(url.partition("://")[2].partition("/")[0], 443)
    return url


def _positive(text: str) -> None:
    if parse_duration(text) < 0.001:
        raise ValueError(f"{text!r} is too short; write 1ms or more")


def _share(text: str) -> None:
    parse_nodes(text, 100)


def _some_nodes(text: str) -> None:
    if parse_nodes(text, 100) == 0:
        raise ValueError(f"{text!r} never allows any node; write at least 1 or 1%")


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
ImageUrl = Annotated[
    str,
    Matching(
        r"https?://[^\s/@?#]+(/[^\s]*)?|oci://[^\s/@?#]+/[a-z0-9._/-]+@sha256:[0-9a-f]{64}",
        "a URL like https://host/path or oci://registry/repository@sha256:<digest>",
    ),
    AfterValidator(_reachable),
]
KeptMount = Annotated[str, Matching(r"/(state|data)", "a mount point of a partition that can be kept: /state or /data")]
SavedPath = Annotated[
    str,
    Matching(
        r"(?!.*/\.\.?(?:/|$))(?:/[A-Za-z0-9_@%+=:.,~-]+)+",
        "an absolute path without blanks, . and .., such as /var/lib/models",
    ),
]
ContainerImageName = Annotated[  # of the grammar of references of the distribution project, with a tag or a digest
    str,
    Matching(
        r"(?=.{3,400}$)[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*"
        r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})",
        "the name of a container image with its tag or digest, such as docker.io/vllm/vllm-openai:v0.11.0",
    ),
]
TreePath = Annotated[str, Checked(_inside_tree)]
Attribute = Annotated[AttributeValue | None, BeforeValidator(_attribute)]
LabelKey = Annotated[
    str, Matching(rf"((?=[^/]{{1,253}}/){_DOMAIN}/)?{_LABEL}", "a Kubernetes label key like example.com/tier")
]
LabelValue = Annotated[str, Matching(rf"({_LABEL})?", "a Kubernetes label value")]
DomainLabel = Annotated[str, Matching(r"[a-z][a-z0-9-]{0,62}", "a failure-domain label like rack or nvlink-domain")]


class Metadata(Model):
    """The name of a resource."""

    name: Name = Field(description="Name of the resource, unique within its kind.")


def _of_this_format(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_GROUP) and value != API_VERSION:
        raise ValueError(f"{value!r} is another version of the format: this reconciler reads {API_VERSION} alone")
    return value


ApiVersion = Annotated[Literal["reconciler.dev/v1alpha1"], BeforeValidator(_of_this_format)]


class Resource(Model):
    """A resource: one YAML document."""

    api_version: ApiVersion = Field(description="Version of this format.")
    kind: str = Field(description="Kind of the resource.")
    metadata: Metadata = Field(description="Name of the resource.")
    spec: Any = Field(description="Content of the resource.")


Domains = Mapping[DomainLabel, Text]
