"""The settings of the server of install documents, as the spec gives them."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.measurements import BootMeasurements


@dataclass(frozen=True, slots=True)
class InstallerPolicy:
    """The server of install documents (DESIGN 7.5). `url`: its address as BMCs and installers reach it."""

    listen: str  # host:port; port 0 = any free one
    url: str | None  # None: http://<listen>
    iso: str  # URL of the boot medium
    measurements: BootMeasurements | None = None  # of that medium
