"""The contract's documents as the init reads them: the same fields as reconciler/model/install.py, checked by hand.

That module needs pydantic, which no initrd has. tests/installer/test_documents.py holds the two together.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

MAJOR = "1"
T = TypeVar("T")


class Malformed(ValueError):
    """A document is not the contract's. The text says which key is wrong."""


@dataclass(frozen=True)
class Attempt:
    url: str
    mac: str | None = None
    address: str | None = None
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    vlan: int | None = None
    proxy: str | None = None
    format: str = "1.0"


@dataclass(frozen=True)
class Identity:
    serial: str | None
    uuid: str | None


@dataclass(frozen=True)
class Image:
    name: str
    version: str
    url: str
    sha256: str
    format: str = "raw+zstd"
    size: int | None = None
    signature: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class RootDisk:
    serial: str | None
    wwn: str | None = None


@dataclass(frozen=True)
class Layout:
    esp: int
    root: int
    state: int
    data: bool = True


@dataclass(frozen=True)
class Link:
    name: str
    kind: str = "ethernet"
    mac: str | None = None
    members: tuple[str, ...] = ()
    mode: str | None = None
    parent: str | None = None
    vlan: int | None = None
    addresses: tuple[str, ...] = ()
    gateway: str | None = None
    mtu: int | None = None


@dataclass(frozen=True)
class Network:
    links: tuple[Link, ...]
    dns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ssh:
    user_ca: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    node: str
    hostname: str
    nonce: str
    machine: Identity
    image: Image
    root_disk: RootDisk
    layout: Layout | None = None
    preserve: tuple[str, ...] = ()
    network: Network | None = None
    ssh: Ssh = Ssh()
    kernel_arguments: tuple[str, ...] = ()
    attest: bool = False
    then: str = "power_off"
    format: str = "1.0"


@dataclass(frozen=True)
class EraseDocument:
    node: str
    nonce: str
    machine: Identity
    drives: tuple[str, ...]
    then: str = "erase"
    format: str = "1.2"


@dataclass(frozen=True)
class Challenge:
    credential: str
    secret: str
    nonce: str


def load(kind: type[T], text: bytes) -> T:
    """Read a document of `kind`. Raise Malformed for anything else, and for another major version."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from None
    stated = value.get("format", MAJOR) if isinstance(value, dict) else MAJOR
    if str(stated).partition(".")[0] != MAJOR:
        raise Malformed(f"format: this installer reads {MAJOR}.x, and not {stated}")
    loaded: T = _read(kind, value, "")
    return loaded


def load_any(text: bytes) -> Document | EraseDocument:
    """Read what an attempt is told: to install, unless it says `then: erase`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from None
    erases = isinstance(value, dict) and value.get("then") == "erase"
    return load(EraseDocument, text) if erases else load(Document, text)


def _read(kind: Any, value: Any, where: str) -> Any:
    """Return `value` as `kind`: a dataclass, tuple[X, ...], X | None, or a plain type that it must have exactly."""
    if get_origin(kind) is UnionType:
        inner = next(arg for arg in get_args(kind) if arg is not NoneType)
        return None if value is None else _read(inner, value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise Malformed(f"{where}: not a list")
        return tuple(_read(get_args(kind)[0], entry, f"{where}.{at}") for at, entry in enumerate(value))
    if is_dataclass(kind):
        return _read_fields(kind, value, where)
    if type(value) is not kind:
        raise Malformed(f"{where}: not of type {kind.__name__}")
    return value


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise Malformed(f"{where or 'the document'}: not an object")
    types = get_type_hints(kind)
    prefix = f"{where}." if where else ""
    for unknown in sorted(value.keys() - types.keys()):
        raise Malformed(f"{prefix}{unknown}: this installer does not know this key")
    for field in fields(kind):
        if field.default is MISSING and field.name not in value:
            raise Malformed(f"{prefix}{field.name}: it is missing")
    return kind(**{name: _read(types[name], entry, f"{prefix}{name}") for name, entry in value.items()})
