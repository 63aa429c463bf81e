"""What the GPUs of a node have in common, which is what is compared of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from reconciler.diff import normalise
from reconciler.diff.readings import Missing
from reconciler.model.observed import Gpu
from reconciler.model.vocab import UnknownReason


@dataclass(frozen=True, slots=True)
class Survey:
    """`answering`: how many are not lost."""

    answering: int
    model: Hashable
    layout: Hashable


@dataclass(frozen=True, slots=True)
class _Like:
    """What GPUs of equal nodes share: all but their serial numbers and the like."""

    index: int
    lost: bool
    name: str | None
    mig_current: bool | None
    mig_pending: bool | None
    profiles: tuple[str, ...]


def survey(gpus: Iterable[Gpu]) -> Survey:
    return _survey(
        tuple(
            [
                (
                    gpu.index,
                    gpu.lost,
                    gpu.name,
                    gpu.mig_current,
                    gpu.mig_pending,
                    tuple([device.profile for device in gpu.mig_devices]) if gpu.mig_devices else (),
                )
                for gpu in gpus
            ]
        )
    )


@lru_cache(maxsize=4096)
def _survey(found: tuple[tuple[int, bool, str | None, bool | None, bool | None, tuple[str, ...]], ...]) -> Survey:
    gpus = [_Like(*one) for one in found]
    present = [gpu for gpu in gpus if not gpu.lost]
    return Survey(len(present), _model(gpus), _layout(present))


def _model(gpus: Iterable[_Like]) -> Hashable:
    names = sorted({normalise.text(gpu.name) for gpu in gpus if gpu.name})
    return " + ".join(names) if names else Missing(UnknownReason.MALFORMED, "no GPU gives its name")


def layout(mig: Mapping[str, int] | None) -> str:
    """A MIG layout as text, the same for spec and host: "off", or "1g.10gb x4, 3g.40gb"."""
    if mig is None:
        return "off"
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in sorted(mig.items())) or "on, empty"


def _layout(gpus: list[_Like]) -> Hashable:
    """The layout that all GPUs share. GPUs that differ are said one by one; a pending mode is not a mode (A11)."""
    if any(gpu.mig_current is None for gpu in gpus):
        return Missing(UnknownReason.MALFORMED, "a GPU gives no MIG mode")
    said = [_said(gpu) for gpu in gpus]
    if len(set(said)) == 1:
        return said[0]
    return "; ".join(f"GPU {gpu.index}: {words}" for gpu, words in zip(gpus, said, strict=True))


def _said(gpu: _Like) -> str:
    counts = {profile: gpu.profiles.count(profile) for profile in gpu.profiles}
    changing = "" if gpu.mig_pending in (None, gpu.mig_current) else " (mode change pending)"
    return layout(counts if gpu.mig_current else None) + changing
