"""Operations of a machine's running system. `lab.hardware.commands` maps command lines to these methods."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from reconciler.lab.hardware import remedies
from reconciler.lab.hardware.k3s_site import K3sSite, version_of
from reconciler.lab.hardware.lifecycle import HardwareRejected, Lifecycle, Rejection
from reconciler.lab.hardware.state import DiskImage, GpuState, OsState
from reconciler.model.k3s import UNIT_FILES, K3sRole

_MEMORY_GB = {"H200": 141, "B200": 180, "GB200": 186, "A100-SXM4-40GB": 40}
_PROFILE = re.compile(r"(\d)g\.(\d+)gb(?:\+me)?")
_PROFILE_IDS = {0: 7, 5: 4, 9: 3, 14: 2, 15: 1, 19: 1}  # nvidia-smi's profile id -> compute slices


K3S_UNITS = tuple(role.unit for role in K3sRole)


class HostSide(Lifecycle):
    k3s: K3sSite | None = None  # of the cluster that the reconciler installs on it

    # --- reachability ---

    def ssh_transport(self) -> str | None:
        """Return how a connection must fail: down (no answer) | refused | hang, or None when sshd answers."""
        self.catch_up()
        system = self.state.os
        if system is None:
            return "down"
        if system.stopping or self.fault("ssh_refused"):
            return "refused"
        return "hang" if system.hung or self.fault("ssh_hang") else None

    @property
    def ssh_up(self) -> bool:
        return self.ssh_transport() is None

    @property
    def kubelet_ready(self) -> bool:
        """Tell whether kubelet reports the node ready."""
        return self.kubelet_running and not self.fault("kubelet_not_ready")

    @property
    def kubelet_running(self) -> bool:
        """Tell whether kubelet talks to its API server at all; it then also registers the node."""
        self.catch_up()
        system = self.state.os
        if system is None or system.hung or system.stopping or not system.services_active.get(self.kubelet_unit):
            return False
        if self.k3s is not None and self.kubelet_unit == K3sRole.SERVER.unit and self.k3s.rejects(self):
            return False
        return self.now - system.service_since[self.kubelet_unit] >= self.timings.kubelet_ready_s

    @property
    def kubelet_unit(self) -> str:
        """The unit that the kubelet runs in: K3s has it in its own process."""
        if self.k3s is None or self.state.os is None:
            return "kubelet"
        return next((role.unit for role in K3sRole if self.state.os.services_active.get(role.unit)), "k3s-agent")

    @property
    def k3s_version(self) -> str:
        """The version of K3s that runs; "" = there is none."""
        if self.k3s is None or self.state.os is None:
            return ""
        return self.state.os.k3s_version or version_of(self.disk())

    @property
    def detector_runs(self) -> bool:
        """Tell whether the node problem detector runs: a pod, which starts when the kubelet is ready."""
        if not self.kubelet_running or self.state.os is None:
            return False
        started = self.state.os.service_since[self.kubelet_unit] + self.timings.kubelet_ready_s
        return self.now - started >= self.timings.detector_s

    @property
    def may_change_with_time(self) -> bool:
        """Tell whether time alone may change what the cluster sees of this machine."""
        since = None if self.state.os is None else self.state.os.service_since.get(self.kubelet_unit)
        starting = since is not None and self.now - since < self.timings.kubelet_ready_s + self.timings.detector_s
        return starting or bool(self._timers)

    def system(self) -> OsState:
        """Return the running system. Only commands of the host call this, so there is one."""
        self.catch_up()
        if self.state.os is None:
            raise HardwareRejected(Rejection.ABSENT, "no system is running")
        return self.state.os

    def disk(self) -> DiskImage:
        """Return the image that the running system booted from."""
        self.system()
        assert self.state.booted_disk is not None
        return self.state.disks[self.state.booted_disk]

    # --- operations ---

    def reboot(self) -> None:
        system = self.system()
        if not system.stopping:
            system.stopping = True
            self._timers.at(self.now + self.timings.shutdown_s, "shutdown", lambda: self._enter_post(cold=False))

    def poweroff(self) -> None:
        system = self.system()
        system.stopping = True
        self._timers.at(self.now + self.timings.shutdown_s, "shutdown", self._power_off)

    def set_hostname(self, name: str) -> None:
        self.system().hostname = name
        self.disk().hostname = name

    def sysctl_write(self, key: str, value: str) -> None:
        """Set a sysctl until the next boot."""
        self.system().sysctls[key] = value

    def write_file(self, path: str, text: str) -> None:
        """Write a file on the root disk. A boot applies the files of sysctl.d in the order of their names."""
        disk = self.disk()
        disk.files[path] = text
        unit = path.removeprefix(f"{UNIT_FILES}/").removesuffix(".service")
        if unit in K3S_UNITS:
            disk.services.setdefault(unit, False)
        disk.sysctls = {}
        for name in sorted(disk.files):
            if name.startswith("/etc/sysctl.d/"):
                disk.sysctls |= read_sysctl_file(disk.files[name])

    def service_known(self, name: str) -> bool:
        return name in self.disk().services

    def service_set(self, name: str, *, active: bool | None = None, enabled: bool | None = None) -> None:
        """Start or stop a unit now, enable or disable it for the next boot. ABSENT: no such unit."""
        system, disk = self.system(), self.disk()
        if name not in disk.services:
            raise HardwareRejected(Rejection.ABSENT, f"Unit {name}.service not found.")
        if enabled is not None:
            disk.services[name] = enabled
        if active is None or active == system.services_active.get(name, False):
            return
        system.services_active[name] = active
        if active:
            system.service_since[name] = self.now
            remedies.service_started(self.state, name)
            if self.k3s is not None and name in K3S_UNITS and self.k3s.started(self, name):
                system.services_active[name] = False
                system.service_since.pop(name, None)
        else:
            system.service_since.pop(name, None)
            if self.k3s is not None and name in K3S_UNITS:
                self.k3s.healthy()  # a member of etcd is out from here on, though a restart takes no time in the lab

    # --- MIG ---

    def mig_mode(self, enabled: bool, gpus: Sequence[GpuState]) -> bool:
        """Request MIG mode. Return False when it stays pending until a GPU reset or a boot (K4).

        From Hopper on it changes at once; before, only on a reset. Work on the GPU delays it in either case.
        """
        self.system()
        at_once = True
        for gpu in gpus:
            gpu.mig_pending = enabled
            if gpu.mig_enabled == enabled:
                continue
            if self.gpu_clients() or "A100" in gpu.name:
                at_once = False
            else:
                self._apply_mig_mode(gpu)
        return at_once

    def gpu_reset(self, gpus: Sequence[GpuState]) -> None:
        """Reset GPUs. BUSY while work or a service uses them (K3)."""
        system = self.system()
        held = any(system.services_active.get(name) for name in remedies.HOLDERS)
        if self.gpu_clients() or held or self.fault("gpu_reset_fails"):
            raise HardwareRejected(Rejection.BUSY, "GPU is in use by another client")
        self.state.counters.gpu_resets += 1
        for gpu in gpus:
            self._apply_mig_mode(gpu)
            remedies.clear_ecc(gpu)
        remedies.reset(self.state, system, list(gpus))

    def _apply_mig_mode(self, gpu: GpuState) -> None:
        if gpu.mig_enabled != gpu.mig_pending:
            gpu.mig_enabled = gpu.mig_pending
            gpu.mig_instances.clear()

    def mig_create(self, profiles: Sequence[str], gpus: Sequence[GpuState], *, compute: bool = True) -> None:
        """Create instances on each of these GPUs, all or none. `profiles`: names or ids."""
        self.system()
        for gpu in gpus:
            if not gpu.mig_enabled:
                raise HardwareRejected(Rejection.CONFLICT, f"MIG mode is not enabled on GPU {gpu.index}")
            wanted = [mig_profile(gpu, word) for word in profiles]
            slices = [mig_slices(gpu, name) for name in (*(name for name, _ in gpu.mig_instances), *wanted)]
            if sum(compute for compute, _ in slices) > 7 or sum(memory for _, memory in slices) > 8:
                raise HardwareRejected(Rejection.INVALID, f"insufficient resources on GPU {gpu.index}", tuple(wanted))
        for gpu in gpus:
            for word in profiles:
                identity = uuid.UUID(int=self.rng.getrandbits(128), version=4)
                gpu.mig_instances.append((mig_profile(gpu, word), f"MIG-{identity}"))
            gpu.mig_compute = compute

    def mig_destroy(self, gpus: Sequence[GpuState], *, only_compute: bool = False) -> None:
        """Destroy compute instances, or GPU instances that have none left. BUSY in the wrong order or under work."""
        self.system()
        held = self.gpu_clients() or (not only_compute and any(gpu.mig_instances and gpu.mig_compute for gpu in gpus))
        if held and any(gpu.mig_instances for gpu in gpus):
            raise HardwareRejected(Rejection.BUSY, "In use by another client")
        for gpu in gpus:
            gpu.mig_compute = False
            if not only_compute:
                gpu.mig_instances.clear()
                gpu.mig_compute = True


def mig_memory_gb(gpu: GpuState) -> int:
    return next((size for name, size in _MEMORY_GB.items() if name in gpu.name), 80)


def mig_profiles(gpu: GpuState) -> dict[str, tuple[int, int]]:
    """Return profile name -> (compute slices, memory slices), largest first."""
    shapes = ((7, 8), (4, 4), (3, 4), (2, 2), (1, 2), (1, 1))
    total = mig_memory_gb(gpu)
    sizes = {slices: (total * slices + 4) // 8 for slices in (1, 2, 4, 8)}
    return {f"{compute}g.{sizes[memory]}gb": (compute, memory) for compute, memory in shapes}


def mig_profile(gpu: GpuState, word: str) -> str:
    """Return a profile's name, given its name or nvidia-smi's number for it."""
    profiles = mig_profiles(gpu)
    if word.isdigit() and int(word) in _PROFILE_IDS:
        compute, wide = _PROFILE_IDS[int(word)], int(word) == 15
        return next(name for name, (c, m) in profiles.items() if c == compute and (c > 1 or (m == 2) == wide))
    if word not in profiles or _PROFILE.fullmatch(word) is None:
        raise HardwareRejected(Rejection.INVALID, f"GPU {gpu.index} has no MIG profile {word!r}", (word,))
    return word


def mig_slices(gpu: GpuState, name: str) -> tuple[int, int]:
    return mig_profiles(gpu)[name]


def read_sysctl_file(text: str) -> dict[str, str]:
    pairs = (
        line.partition("=") for line in text.splitlines() if "=" in line and not line.lstrip().startswith(("#", ";"))
    )
    return {key.strip(): value.strip() for key, _, value in pairs}
