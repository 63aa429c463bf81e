"""Write results as Parquet. PyArrow is an optional dependency: it is larger than all others together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import ModuleType
from typing import Any, BinaryIO, Final

from reconciler.model.errors import UsageError

_GROUP: Final = 50_000  # rows that are in memory at once


def library() -> tuple[ModuleType, ModuleType]:
    """Return pyarrow and pyarrow.parquet. Raise UsageError where they are not installed."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise UsageError("Parquet needs PyArrow: pip install '.[parquet]' in the checkout") from None
    return arrow, parquet


def write_parquet(fields: Sequence[str], rows: Iterable[tuple[Any, ...]], sink: BinaryIO) -> None:
    """Write rows of these fields to a stream, group by group. An empty document has the columns all the same."""
    arrow, parquet = library()
    schema = _schema(arrow, fields)
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in _groups(rows):
            columns = list(zip(*group, strict=True))
            arrays = [arrow.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _schema(arrow: Any, fields: Sequence[str]) -> Any:
    """Return the types of the columns. Words of which there are few are dictionaries."""
    few, at = arrow.dictionary(arrow.int32(), arrow.string()), arrow.timestamp("us", tz="UTC")
    kinds = {
        "attempt": arrow.int64(), "started_at": at, "ended_at": at, "output": arrow.string(), "value": arrow.float64(),
    }  # fmt: skip
    return arrow.schema([(name, kinds.get(name, few)) for name in fields])


def _groups(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    left = iter(rows)
    while group := list(islice(left, _GROUP)):
        yield group
