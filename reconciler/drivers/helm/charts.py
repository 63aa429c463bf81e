"""The archives of charts: fetched by helm, and used only with the digest that the spec declares."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import tempfile
from pathlib import Path
from typing import Final

from reconciler.drivers.helm.process import Helm
from reconciler.model.errors import DriverError, Failure
from reconciler.model.releases import Chart

PULL_S: Final = 120.0


class Charts:
    """Keeps archives in a folder by their digest, for as long as the process lives."""

    def __init__(self, helm: Helm, folder: Path) -> None:
        self._helm = helm
        self._folder = folder
        self._fetching = asyncio.Lock()

    async def path(self, chart: Chart) -> Path:
        """Return the archive. Raise DriverError: REJECTED names both digests where it is another one."""
        kept = self._folder / f"{chart.sha256}.tgz"
        async with self._fetching:
            if not kept.exists():
                with tempfile.TemporaryDirectory(dir=self._folder) as place:
                    found = await self._fetch(chart, Path(place))
                    _check(chart, found)
                    found.replace(kept)
        return kept

    async def _fetch(self, chart: Chart, place: Path) -> Path:
        if chart.archive is not None:
            found = place / "chart.tgz"
            found.write_bytes(base64.b64decode(chart.archive))
            return found
        in_registry = chart.source.startswith("oci://")
        origin = [chart.source] if in_registry else [chart.name, "--repo", chart.source]
        arguments = ["pull", *origin, "--version", chart.version, "--destination", str(place)]
        await self._helm.run(arguments, timeout_s=PULL_S, cluster=False)
        return _only_archive(place, chart)


def _only_archive(place: Path, chart: Chart) -> Path:
    found = list(place.glob("*.tgz"))
    if len(found) != 1:
        raise DriverError(Failure.MALFORMED, f"helm pull of {chart.name} left {len(found)} archives")
    return found[0]


def _check(chart: Chart, archive: Path) -> None:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != chart.sha256:
        problem = f"chart {chart.name} {chart.version} of {chart.source} has sha256 {digest}"
        raise DriverError(Failure.REJECTED, f"{problem}, the spec says {chart.sha256}: it is not used")
