"""Bodies of requests that are read from a file while they are sent."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Upload:
    """A file between `before` and `after`. It can be sent again, from its beginning."""

    path: Path
    content_type: str = "application/octet-stream"
    before: bytes = b""
    after: bytes = b""

    def __len__(self) -> int:
        return len(self.before) + self.path.stat().st_size + len(self.after)

    def __iter__(self) -> Iterator[bytes]:
        if self.before:
            yield self.before
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
        if self.after:
            yield self.after


def multipart(path: Path, name: str, parameters: Mapping[str, Any]) -> Upload:
    """Return the form of DSP0266, 13.5: `UpdateParameters` as JSON, then `UpdateFile`. Dell reads the file's name."""
    mark = secrets.token_hex(16)
    before = (
        f'--{mark}\r\nContent-Disposition: form-data; name="UpdateParameters"\r\nContent-Type: application/json\r\n\r\n'
        f"{json.dumps(parameters)}\r\n"
        f'--{mark}\r\nContent-Disposition: form-data; name="UpdateFile"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return Upload(path, f"multipart/form-data; boundary={mark}", before.encode(), f"\r\n--{mark}--\r\n".encode())
