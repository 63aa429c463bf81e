"""Join what an image and a persona have an install keep of the root disk, and check that the image's layout can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reconciler.model.desired import DesiredImage
from reconciler.model.errors import Diagnostic, Position
from reconciler.model.vocab import ReimagedBy
from reconciler.spec.kinds.golden_image import ImageVersion
from reconciler.spec.kinds.persona import PersonaSpec
from reconciler.spec.parse import Declarations, DeclaredResource

ORDER = ("/state", "/data")


def with_kept(
    image: DesiredImage | None, persona: DeclaredResource[PersonaSpec] | None
) -> tuple[DesiredImage | None, dict[str, Position]]:
    """Return the image with all that an install keeps, and where the spec says so if the persona adds to it."""
    if image is None or persona is None or set(persona.spec.preserve) <= set(image.preserve):
        return image, {}
    kept = {*image.preserve, *persona.spec.preserve}
    found = replace(image, preserve=tuple(point for point in ORDER if point in kept))
    return found, {"image.preserve": persona.at("preserve")}


def check_preserve(
    declared: Declarations,
    pool: str,
    persona: DeclaredResource[PersonaSpec] | None,
    image: str = "",
    version: ImageVersion | None = None,
) -> Iterator[Diagnostic]:
    """Yield a problem for what an install of this version of `image` would not keep, though the persona says so.

    Without a version nothing is installed, so that nothing is lost but by a person.
    """
    if persona is None or not persona.spec.preserve:
        return
    lost = ""
    if declared.pools[pool].spec.reimaged_by is ReimagedBy.PERSON:
        lost = f"a person writes the disks of pool {pool!r}, and what is kept is up to that person"
    elif version is None:
        return
    elif version.layout is None:
        lost = f"image {image} {version.version} has no layout: an install writes the whole disk"
    elif "/data" in persona.spec.preserve and not version.layout.data:
        lost = f"the layout of image {image} {version.version} has no data partition"
    if lost:
        hint = "save it with `backup`, or take it away"
        yield persona.problem(("preserve",), f"it would not be kept: {lost}", hint)
