"""Write the entry of a GoldenImage for an image, to paste into a spec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.model.vocab import ImageFormat


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a machine that boots the image: digests of EFI programs (PCR 4), and PCR 11 by phase."""

    applications: tuple[str, ...]
    pcr11: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GoldenImageEntry:
    """One version of an image. `signature`: of minisign, or "". `format`: None for the usual one."""

    name: str
    version: str
    url: str
    sha256: str
    format: ImageFormat | None
    size: str
    signature: str
    key: str
    contents: Mapping[str, str]
    measured: Measured
    command_line: str = ""  # of the kernel, as the UKI has it


def render_entry(entry: GoldenImageEntry) -> str:
    """Return the whole resource in YAML."""
    return "".join(f"{line}\n" for line in _lines(entry))


def _lines(entry: GoldenImageEntry) -> Iterator[str]:
    yield "apiVersion: reconciler.dev/v1alpha1"
    yield "kind: GoldenImage"
    yield f"metadata: {{name: {entry.name}}}"
    yield "spec:"
    yield "  versions:"
    yield f'    - version: "{entry.version}"'
    yield f"      url: {entry.url}"
    yield f"      sha256: {entry.sha256}"
    if entry.format is not None:
        yield f"      format: {entry.format.value}"
    yield f"      size: {entry.size}"
    if entry.signature:
        yield "      signature:"
        yield f"        key: {entry.key}"
        yield "        minisign: |-"
        yield from (f"          {line}" for line in entry.signature.strip().splitlines())
    if entry.contents:
        yield "      contents:"
        yield from (f"        {part}: {version}" for part, version in entry.contents.items())
    if entry.command_line:
        yield f"      commandLine: {json.dumps(entry.command_line)}"
    if entry.measured.applications and entry.measured.pcr11:
        yield "      # With these, nodes are admitted only with a quote of their TPM. Leave them out otherwise."
        yield "      measurements:"
        yield "        applications:"
        yield from (f"          - {digest}" for digest in entry.measured.applications)
        yield "        pcr11:"
        yield from (f"          {phase}: {value}" for phase, value in entry.measured.pcr11.items())
