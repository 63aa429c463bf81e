"""The inventory that `init --from` or the spec names: a file, or a query of NetBox."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reconciler.app.clocks import RealClock
from reconciler.app.inventory import ansible, ironic, maas, metal3, netbox, terraform
from reconciler.app.inventory.fields import InventoryRow, Names, check_column
from reconciler.app.runtime import run_async
from reconciler.drivers.netbox import read_devices
from reconciler.model.errors import UsageError, did_you_mean
from reconciler.model.inventory import InventoryKind
from reconciler.model.json_text import parse_json
from reconciler.strict_yaml.parse import UnreadableFile, parse_yaml

READERS: Final[Mapping[InventoryKind, Callable[[Any, str, Names], list[InventoryRow]]]] = {
    InventoryKind.ANSIBLE: ansible.rows, InventoryKind.NETBOX: netbox.rows, InventoryKind.IRONIC: ironic.rows,
    InventoryKind.METAL3: metal3.rows, InventoryKind.TERRAFORM: terraform.rows, InventoryKind.MAAS: maas.rows,
}  # fmt: skip
_TOKEN: Final = "NETBOX_TOKEN"


@dataclass(frozen=True, slots=True)
class InventorySource:
    """`place`: a file, or for NetBox a URL. `names`: the paths of values that its user names, by column."""

    kind: InventoryKind
    place: str
    names: Names = field(default_factory=dict)

    @property
    def is_queried(self) -> bool:
        """Return whether it is asked over the network, which takes a token."""
        return self.kind is InventoryKind.NETBOX and "://" in self.place


def parse_source(text: str, fields: tuple[str, ...]) -> InventorySource:
    """Return the source that KIND:PLACE names, with fields like bmc=PATH. Raise UsageError for anything else."""
    kind, _, place = text.partition(":")
    if kind not in READERS or not place:
        hint = did_you_mean(kind, READERS)
        raise UsageError(f"--from {text}: KIND:FILE is expected, with KIND one of {', '.join(READERS)}; {hint}")
    names: dict[str, str] = {}
    for one in fields:
        column, _, path = one.partition("=")
        if not column or not path or column in names:
            raise UsageError(f"--field {one}: COLUMN=PATH is expected, once for each column")
        check_column(column, f"--field {one}")
        names[column] = path
    return InventorySource(InventoryKind(kind), place, names)


def read_inventory(source: InventorySource) -> list[InventoryRow]:
    """Return the rows of an inventory. Raise UsageError with the line or the object of a problem."""
    token = ""
    if source.is_queried:
        token = os.environ.get(_TOKEN, "")
        if not token:
            raise UsageError(f"there is no token: set {_TOKEN} to one that may read devices")
    return run_async(fetch_rows(source, token))


async def fetch_rows(source: InventorySource, token: str) -> list[InventoryRow]:
    """Return the rows of an inventory, as `read_inventory` does. `token`: for one that is queried."""
    if source.is_queried:
        return READERS[source.kind](await read_devices(source.place, token, RealClock()), "NetBox", source.names)
    return await asyncio.to_thread(_rows_of_file, source)


def _rows_of_file(source: InventorySource) -> list[InventoryRow]:
    read = READERS[source.kind]
    return [
        found for document, where in _documents(Path(source.place)) for found in read(document, where, source.names)
    ]


def _documents(path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the documents of a file of JSON or YAML, each with its file, and its line where the file has several."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield parse_json(text), str(path)
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from None
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
        return
    try:
        documents, problems = parse_yaml(text, str(path))
    except UnreadableFile as error:
        raise UsageError(str(error.diagnostic)) from None
    if problems:
        raise UsageError("\n".join(map(str, problems)))
    for one in documents:
        yield one.data, f"{path}:{one.at().line}"
