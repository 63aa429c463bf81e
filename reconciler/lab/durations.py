"""Durations of operations in a rehearsal, from past attempts or else the lab's typical ones, varied per machine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from reconciler.lab.hardware.timings import TYPICAL, Timings

SPREAD = (
    0.12  # standard deviation of the logarithm without past attempts: one in ten takes a sixth longer than the median
)
_P90 = 1.2816  # the 90th percentile in standard deviations
_BOOT_S = TYPICAL.shutdown_s + TYPICAL.post_s + TYPICAL.os_boot_s
_INSTALL_S = _BOOT_S + TYPICAL.post_s + TYPICAL.installer_boot_s  # of a reimage without writing the image
GATE_S = 1800.0
MIN_INSTALL_S = 5.0


@dataclass(frozen=True, slots=True)
class ActionDuration:
    """The past durations of an action: their median and 90th percentile."""

    median_s: float
    p90_s: float


PastDurations = Callable[[str, str], ActionDuration | None]  # (action, target) -> duration


class Durations:
    """Draws the durations of each node. `history`: node -> past durations on nodes of its kind."""

    def __init__(self, seed: int, history: Callable[[str], PastDurations]) -> None:
        self._seed = seed
        self._history = history

    def timings(self, node: str) -> Timings:
        past = self._history(node)
        boot = self._factor(node, "boot", past("soft_restart", "") or past("power_cycle", ""), _BOOT_S)
        spread = self._factor(node, "install", None, 1.0)
        reimage = past("reimage", "")
        if reimage is not None:
            spread = self._factor(node, "install", reimage, reimage.median_s)
        install_s = TYPICAL.install_s if reimage is None else max(reimage.median_s - _INSTALL_S * boot, MIN_INSTALL_S)
        return replace(
            TYPICAL,
            shutdown_s=TYPICAL.shutdown_s * boot,
            post_s=TYPICAL.post_s * boot,
            os_boot_s=TYPICAL.os_boot_s * boot,
            installer_boot_s=TYPICAL.installer_boot_s * boot,
            install_s=install_s * spread,
            bmc_restart_s=TYPICAL.bmc_restart_s
            * self._factor(node, "bmc", past("reset_bmc", ""), TYPICAL.bmc_restart_s),
            firmware_scale=self._factor(node, "firmware", None, 1.0),
        )

    def gate_s(self, node: str) -> float:
        return GATE_S * self._factor(node, "gate", self._history(node)("run_gate", ""), GATE_S)

    def _factor(self, node: str, what: str, past: ActionDuration | None, usual_s: float) -> float:
        """Return this machine's duration divided by `usual_s`. It depends only on the seed."""
        drawn = random.Random(f"{self._seed} {what} {node}").gauss(0.0, 1.0)  # noqa: S311  the draw of a rehearsal
        if past is None or past.median_s <= 0:
            return math.exp(SPREAD * drawn)
        spread = math.log(max(past.p90_s, past.median_s) / past.median_s) / _P90
        return past.median_s / usual_s * math.exp(spread * drawn)
