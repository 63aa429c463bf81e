"""Durations of hardware operations in seconds of fleet time, typical of 8-GPU servers; tests may set others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    power_off_s: float = 2.0  # forced
    shutdown_s: float = 25.0  # graceful, once asked
    post_s: float = 150.0
    os_boot_s: float = 60.0
    kubelet_ready_s: float = 20.0  # after the system runs
    detector_s: float = 20.0  # until the node problem detector runs, after that
    installer_boot_s: float = 60.0
    install_s: float = 240.0
    document_retry_s: float = 15.0
    document_tries: int = 20
    last_word_tries: int = 120  # of an installer that has ended: half an hour
    bmc_restart_s: float = 90.0
    firmware_scale: float = 1.0  # times FirmwareState.minutes


TYPICAL = Timings()
