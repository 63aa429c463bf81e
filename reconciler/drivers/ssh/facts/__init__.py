"""The facts of a host: the commands that read them, and the decoding of their answers as `HostFacts`.

    requests(sysctls, services)           the commands          -> model.fact_framing.build_program
    host_facts(answers, sysctls, ...)     the decoded answers   <- model.fact_framing.parse_answer

Both are pure. A fact that failed is None in HostFacts, and `unknown` says why; it never affects another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from reconciler.drivers.ssh.facts import (
    counters,
    gpu,
    installed,
    k3s,
    kernel_log,
    memory,
    modules,
    network,
    nvlink,
    slots,
    software,
    storage,
    system,
    telemetry,
)
from reconciler.drivers.ssh.facts.fact import Fact, Parsed
from reconciler.model.fact_framing import FactRequest
from reconciler.model.gate import CommandResult
from reconciler.model.installed import InstalledFacts
from reconciler.model.observed import AmdGpu, HostFacts, ImageIdentity, Link, Service

__all__ = ["FACTS", "host_facts", "requests"]

T = TypeVar("T")

# Two more facts, services and sysctls, depend on what the spec manages, and are built on request.
FACTS: tuple[Fact[Any], ...] = (
    system.HOSTNAME,
    system.KERNEL,
    system.BOOT_ID,
    system.UPTIME,
    system.DMI,
    system.OS_RELEASE,
    system.IMAGE,
    slots.SLOTS,
    storage.ROOT_DISK,
    system.SECURE_BOOT,
    software.CUDA,
    software.NCCL,
    software.CONTAINER_RUNTIME,
    software.KUBELET,
    gpu.SMI,
    gpu.LIST,
    nvlink.NVLINK,
    nvlink.NVLINK_ERRORS,
    kernel_log.KERNEL_LOG,
    network.LINKS,
    network.RDMA,
    storage.NVME,
    storage.DISKS,
    memory.DIMM_ERRORS,
    memory.DIMM_RECORDS,
    counters.COUNTERS,
    modules.MODULES,
    telemetry.DAEMONS,
    telemetry.CLOCK,
    telemetry.DCGM,
    telemetry.DCGM_FIELDS,
    telemetry.AMD,
    telemetry.AMD_IDENTITY,
    installed.INTERFACES,
    installed.ROUTES,
    installed.USER_CA,
    installed.COMMAND_LINE,
    k3s.K3S,
)


def requests(
    sysctls: Sequence[str],
    services: Sequence[str],
    *,
    times: float = 1.0,
    at_most_s: float = inf,
    more: Sequence[Fact[Any]] = (),
) -> tuple[FactRequest, ...]:
    """Return the commands to run on a host, each with `times` its usual timeout, and no more than `at_most_s`.

    `more`: facts that the fleet adds.
    """
    named = ([system.services_fact(services)] if services else []) + ([system.sysctls_fact(sysctls)] if sysctls else [])
    asked = (*FACTS, *named, *more)
    return tuple(FactRequest(fact.name, fact.command, min(times * fact.timeout_s, at_most_s)) for fact in asked)


@dataclass(slots=True)
class _Reader:
    """Reads facts from one answer, and collects why some are unknown."""

    answers: Mapping[str, CommandResult]
    unknown: dict[str, str] = field(default_factory=dict)

    def read(self, fact: Fact[T]) -> T | None:
        return self.take(fact.read(self.answers))

    def take(self, parsed: Parsed[T]) -> T:
        self.unknown |= parsed.notes
        return parsed.value


def host_facts(
    answers: Mapping[str, CommandResult], sysctls: Sequence[str] = (), services: Sequence[str] = ()
) -> HostFacts:
    reader = _Reader(answers)
    serial, uuid = reader.read(system.DMI) or (None, None)
    report = _gpus(reader)
    links_up = reader.read(nvlink.NVLINK)
    log = reader.read(kernel_log.KERNEL_LOG)
    daemons, restarts = reader.read(telemetry.DAEMONS) or (None, None)
    return HostFacts(
        hostname=reader.read(system.HOSTNAME),
        kernel=reader.read(system.KERNEL),
        boot_id=reader.read(system.BOOT_ID),
        uptime_s=reader.read(system.UPTIME),
        serial=serial,
        uuid=uuid,
        image=_image(reader),
        secure_boot=reader.read(system.SECURE_BOOT),
        driver=None if report is None else report.driver,
        gpus=None if report is None else report.gpus,
        nvlinks_active=None if links_up is None else links_up.active,
        xids=None if log is None else log.xids,
        links=_links(reader),
        nvme=reader.read(storage.NVME),
        services=_services(reader, services),
        sysctls=_sysctls(reader, sysctls),
        unknown=reader.unknown,
        smi=None if report is None else report.answer,
        nvlinks_slow=None if links_up is None else links_up.slow,
        kernel_events=None if log is None else log.events,
        cuda=reader.read(software.CUDA),
        nccl=reader.read(software.NCCL),
        container_runtime=reader.read(software.CONTAINER_RUNTIME),
        kubelet=reader.read(software.KUBELET),
        installed=_installed(reader),
        disks=reader.read(storage.DISKS),
        dimm_errors=reader.read(memory.DIMM_ERRORS),
        dimm_records=reader.read(memory.DIMM_RECORDS),
        counters=reader.read(counters.COUNTERS),
        module_alarms=reader.read(modules.MODULES),
        gpu_counters=None if report is None else report.slowed,
        nvlink_counters=reader.read(nvlink.NVLINK_ERRORS),
        daemons=daemons,
        daemon_counters=restarts,
        clock=reader.read(telemetry.CLOCK),
        dcgm=reader.read(telemetry.DCGM),
        dcgm_counters=reader.read(telemetry.DCGM_FIELDS),
        amd_gpus=_amd_gpus(reader),
        k3s=reader.read(k3s.K3S),
    )


def _gpus(reader: _Reader) -> gpu.SmiReport | None:
    report = reader.read(gpu.SMI)
    return None if report is None else reader.take(gpu.with_mig_devices(report, gpu.LIST.read(reader.answers)))


def _amd_gpus(reader: _Reader) -> tuple[AmdGpu, ...] | None:
    gpus, known = reader.read(telemetry.AMD), reader.read(telemetry.AMD_IDENTITY)
    return None if gpus is None else telemetry.with_identity(gpus, known or {})


def _image(reader: _Reader) -> ImageIdentity | None:
    """Return the image that runs, by its record, with os-release and the booted disk as independent evidence."""
    image, release, disk = reader.read(system.IMAGE), reader.read(system.OS_RELEASE), reader.read(storage.ROOT_DISK)
    found = reader.read(slots.SLOTS)
    if image is None:
        return None
    release = release or {}
    return replace(
        slots.running_image(image, found),
        os_release_id=release.get("IMAGE_ID"),
        os_release_version=release.get("IMAGE_VERSION"),
        booted_disk=disk,
    )


def _links(reader: _Reader) -> tuple[Link, ...] | None:
    """Return Ethernet and RDMA ports, or None unless both could be read: unread ports would look absent."""
    ethernet, rdma = reader.read(network.LINKS), reader.read(network.RDMA)
    return None if ethernet is None or rdma is None else ethernet + rdma


def _installed(reader: _Reader) -> InstalledFacts:
    return InstalledFacts(
        network=installed.network_of(reader.read(installed.INTERFACES), reader.read(installed.ROUTES)),
        user_ca=reader.read(installed.USER_CA),
        kernel_arguments=reader.read(installed.COMMAND_LINE),
    )


def _services(reader: _Reader, names: Sequence[str]) -> Mapping[str, Service] | None:
    if not names:
        return {}
    found = reader.read(system.services_fact(names))
    if found is None:
        return None
    named = system.asked_services(found, names)
    for name in names:
        if name not in named:
            reader.unknown[f"services.{name}"] = "malformed: systemctl gave no answer for it"
        elif named[name].active is None:
            reader.unknown[f"services.{name}"] = "unsupported: it is neither active nor inactive"
    return named


def _sysctls(reader: _Reader, names: Sequence[str]) -> Mapping[str, str] | None:
    if not names:
        return {}
    found = reader.read(system.sysctls_fact(names))
    for name in names:
        if found is not None and name not in found:
            reader.unknown[f"sysctls.{name}"] = "unsupported: this kernel has no such key, or it can't be read"
    return found
