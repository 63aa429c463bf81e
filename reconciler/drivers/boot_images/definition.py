"""Read the definition of an image: a TOML file, beside which are the files and the script that it names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reconciler.model.errors import UsageError

_NAME: Final = r"^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$"
_VERSION: Final = r"^[A-Za-z0-9]([A-Za-z0-9.~-]{0,62}[A-Za-z0-9])?$"  # no + or _: the boot loader reads them in names


class ImageDefinition(BaseModel):
    """The parts that an image is made of."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: Annotated[str, Field(pattern=_NAME)]
    version: Annotated[str, Field(pattern=_VERSION)]
    suite: str
    packages: Annotated[tuple[str, ...], Field(min_length=1)]
    architecture: Literal["amd64", "arm64"] = "amd64"
    mirror: str | None = None
    components: tuple[str, ...] = ("main",)
    verity: bool = True
    kernel_arguments: tuple[str, ...] = ()
    esp_mib: Annotated[int, Field(ge=64, le=4096)] = 256
    root_mib: Annotated[int | None, Field(ge=64, description="Of a root without verity. Absent: what it needs.")] = None
    tree: str | None = None
    setup: str | None = None


def read_definition(path: Path) -> ImageDefinition:
    """Return the definition in a file. Raise UsageError, which names the key that is wrong."""
    try:
        definition = ImageDefinition.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    for name in (definition.tree, definition.setup):
        if name is not None and not (path.parent / name).exists():
            raise UsageError(f"{path} names {name}, which is not beside it")
    return definition
