"""ports.Bmc on a lab machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from reconciler.diff.boot_order import NoSuchEntry, resolve
from reconciler.lab.hardware import parts
from reconciler.lab.hardware.machine import HardwareRejected, Machine, Rejection
from reconciler.lab.hardware.spdm import SIGNING_S
from reconciler.lab.hardware.state import DriveState, MachineState, TaskState
from reconciler.lab.inprocess.logged import SEVERITIES, logged
from reconciler.model.abilities import URL, Abilities, BootOption
from reconciler.model.bmc_log import has_news
from reconciler.model.errors import DriverError, Failure
from reconciler.model.event_tokens import CONTEXT, owner_mark
from reconciler.model.measurements import SignedMeasurements
from reconciler.model.observed import (
    Answered,
    AttributeValue,
    BmcEvent,
    BmcTask,
    BootOverride,
    ComponentIntegrity,
    Drive,
    FirmwareItem,
    Manager,
    Nic,
    Part,
    RedfishHot,
    RedfishInventory,
    Sensor,
    Silent,
)
from reconciler.model.ports import Clock, FirmwareFile, PowerAction
from reconciler.model.vocab import BootPhase, Health, Power, UnknownReason

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
LATENCY_S = 0.3
TASKS = "/redfish/v1/TaskService/Tasks/"
_RETRIES_503 = 3
_TARGETS = {"cd": "Cd", "disk": "Hdd", "pxe": "Pxe"}
_REACHED = {
    PowerAction.ON: "on",
    PowerAction.GRACEFUL_OFF: "off",
    PowerAction.FORCE_OFF: "off",
}
_FAILURES: Mapping[str, tuple[Failure, str]] = {
    "unreachable": (Failure.UNREACHABLE, "no answer from the BMC"),
    "503": (Failure.BUSY, "HTTP 503 Service Unavailable"),
    "wrong_password": (Failure.AUTH, "HTTP 401 Unauthorized"),
    "garbage": (Failure.MALFORMED, "the BMC's answer is not JSON"),
}
# A process with a session goes on; here each call is one that has none yet.
_NO_SESSION = "HTTP 503: The maximum number of user sessions is reached.; all sessions of the BMC are taken"
_REASONS = {
    Failure.UNREACHABLE: UnknownReason.UNREACHABLE,
    Failure.BUSY: UnknownReason.UNREACHABLE,
    Failure.AUTH: UnknownReason.AUTH,
    Failure.MALFORMED: UnknownReason.MALFORMED,
}
_KINDS: Mapping[Rejection, tuple[Failure, float | None]] = {
    Rejection.CONFLICT: (Failure.BUSY, 10.0),
    Rejection.IN_POST: (Failure.BUSY, 5.0),
    Rejection.BUSY: (Failure.BUSY, 30.0),
    Rejection.INVALID: (Failure.REJECTED, None),
    Rejection.ABSENT: (Failure.REJECTED, None),
    Rejection.UNSUPPORTED: (Failure.UNSUPPORTED, None),
}
_ON_STANDBY_POWER = ("bmc", "bios", "cpld")  # firmware of other devices can't be read while they are off (A10)


def _targets_of(state: MachineState) -> tuple[str, ...]:
    return ("None", "Cd", "Hdd", "Pxe", *(("UefiHttp",) if state.http_boot else ()))


def _abilities_of(state: MachineState) -> Abilities | None:
    """Return what a BMC without virtual media says; None, as if nothing were known of it, for all others."""
    if state.has_media:
        return None
    http = "" if state.http_boot else "the BMC offers no boot from an HTTP URI"
    attributes = {state.http_attribute: URL} if state.http_attribute else {}
    lacks = {"media": "the BMC offers no virtual media for discs", "http_boot": http}
    return Abilities(lacks=lacks, http_attributes=attributes)


class MachineBmc:
    """`epoch`: the date at which the machine's clock read 0. `latency_s`: of a request; 0 = no wait."""

    def __init__(self, machine: Machine, clock: Clock, epoch: datetime, *, latency_s: float = LATENCY_S) -> None:
        self._latency_s = latency_s
        self._machine = machine
        self._clock = clock
        self._epoch = epoch
        self._lock = asyncio.Lock()  # one call at a time (A12)

    # --- reads ---

    async def hot(self) -> Answered[RedfishHot] | Silent:
        return await self._read(self._hot)

    async def inventory(self) -> Answered[RedfishInventory] | Silent:
        return await self._read(self._inventory)

    async def log_news(self, told: Sequence[BmcEvent]) -> Answered[bool] | Silent:
        return await self._read(
            lambda: has_news(logged(self._machine.state.events, self._epoch, self._clock.now())[0], told)
        )

    async def media(self) -> str | None:
        return await self._ask(lambda: self._machine.shown_media)

    async def task(self, uri: str) -> BmcTask | None:
        found = await self._ask(lambda: self._machine.task(uri.removeprefix(TASKS)))
        return None if found is None else self._task(found)

    async def tasks(self) -> Sequence[str]:
        return await self._ask(lambda: [self._task(task).uri for task in self._machine.tasks()])

    async def signed_measurements(self, component: str, nonce: bytes) -> SignedMeasurements:
        await asyncio.sleep(SIGNING_S if self._latency_s else 0.0)
        return await self._ask(lambda: self._machine.sign_measurements(component, nonce))

    # --- writes ---

    async def power(self, action: PowerAction) -> None:
        def order() -> None:
            try:
                self._machine.power(action.value)
            except HardwareRejected:
                if self._machine.state.power != _REACHED[action]:  # a conflict in the target state is success (A7)
                    raise

        await self._ask(order)

    async def stage_bios(self, attributes: Mapping[str, AttributeValue]) -> None:
        await self._ask(lambda: self._machine.stage_bios(attributes))

    async def clear_bios(self) -> None:
        await self._ask(self._machine.clear_pending_bios)

    async def set_secure_boot(self, enabled: bool) -> None:
        await self._ask(lambda: self._machine.set_secure_boot(enabled))

    async def set_boot_order(self, order: Sequence[str]) -> None:
        """Put the given entries first; the others keep their order after them."""
        present = tuple(BootOption(word) for word in self._machine.state.boot_order)
        try:
            first = resolve(order, present)
        except NoSuchEntry as error:
            raise DriverError(Failure.REJECTED, str(error)) from None
        full = [option.reference for option in dict.fromkeys((*first, *present))]
        await self._ask(lambda: self._machine.set_boot_order(full))

    async def boot_once(self, device: str) -> None:
        await self._ask(lambda: self._machine.set_boot_override(_TARGETS[device], "Once"))

    async def clear_boot_override(self) -> None:
        await self._ask(lambda: self._machine.set_boot_override("None", "Disabled"))

    async def insert_media(self, url: str) -> None:
        await self._ask(lambda: self._machine.insert_media(url))

    async def eject_media(self) -> None:
        await self._ask(self._machine.eject_media)

    async def boot_http(self, url: str) -> None:
        if not self._machine.state.http_attribute:
            await self._ask(lambda: self._machine.set_http_boot_uri(url))
        await self._ask(lambda: self._machine.set_boot_override("UefiHttp", "Once"))

    async def http_boot_uri(self) -> str | None:
        state = self._machine.state
        held = state.bios.get(state.http_attribute) if state.http_attribute else state.http_boot_uri
        return await self._ask(lambda: None if held is None else str(held))

    async def update_firmware(self, inventory_id: str, file: FirmwareFile) -> str:
        return TASKS + await self._ask(lambda: self._machine.start_update(inventory_id, file.url))

    async def secure_erase(self, serial: str) -> str:
        return TASKS + await self._ask(lambda: self._machine.secure_erase(serial))

    async def set_indicator(self, lit: bool) -> None:
        await self._ask(lambda: self._machine.set_indicator(lit))

    async def stage_password(self) -> None:
        def stage() -> None:
            state = self._machine.state
            if len(state.kept_passwords) == 1:
                state.kept_passwords = (state.kept_passwords[0] + 1, *state.kept_passwords)

        await self._ask(stage)

    async def change_password(self) -> None:
        await self._give(0)

    async def is_password_proved(self) -> bool:
        return await self._ask(lambda: self._machine.state.bmc_password == self._machine.state.kept_passwords[0])

    async def keep_password(self) -> None:
        await self._ask(lambda: self._keep(0))

    async def put_password_back(self) -> None:
        await self._give(-1)
        await self._ask(lambda: self._keep(-1))

    async def _give(self, at: int) -> None:
        """Give the BMC one of the passwords that are kept."""
        state = self._machine.state

        def give() -> None:
            if self._machine.takes_password():
                state.bmc_password = state.kept_passwords[at]

        boots = state.bmc_boots
        await self._ask(give)
        if state.bmc_boots != boots:
            raise DriverError(Failure.AMBIGUOUS, "the connection was lost while the BMC changed its password")

    def _keep(self, at: int) -> None:
        self._machine.state.kept_passwords = (self._machine.state.kept_passwords[at],)

    async def unsubscribe(self, ledger: str) -> int:
        return await self._ask(lambda: self._machine.unsubscribe(CONTEXT + owner_mark(ledger)))

    async def reset(self) -> None:
        await self._ask(self._machine.reset_bmc)

    async def close(self) -> None:
        """Do nothing: there is no session."""

    # --- the transport ---

    async def _ask(self, do: Callable[[], T]) -> T:
        async with self._lock:
            await self._reach()
            try:
                return do()
            except HardwareRejected as refused:
                kind, retry_after = _KINDS[refused.reason]
                raise DriverError(kind, refused.detail, retry_after=retry_after) from refused

    async def _reach(self) -> None:
        """Send one request to the BMC. Repeat it a few times on a 503, as drivers do (A4)."""
        for attempt in range(_RETRIES_503 + 1):
            if self._latency_s:
                await asyncio.sleep(self._latency_s)
            if (slow := self._machine.fault("bmc_slow")) is not None:
                await asyncio.sleep(float(slow["seconds"]))
            fault, state = self._machine.bmc_transport(), self._machine.state
            if fault is None and self._machine.spend_fault("bmc_sessions"):
                raise DriverError(Failure.BUSY, _NO_SESSION, retry_after=60.0)
            if fault is None and state.bmc_password not in state.kept_passwords:
                fault = "wrong_password"
            if fault is None:
                return
            if fault == "unreachable":
                await asyncio.sleep(CONNECT_TIMEOUT_S)
            if fault != "503" or attempt == _RETRIES_503:
                kind, detail = _FAILURES[fault]
                raise DriverError(kind, detail)
            await asyncio.sleep(1.0)

    async def _read(self, snapshot: Callable[[], T]) -> Answered[T] | Silent:
        try:
            value = await self._ask(snapshot)
        except DriverError as error:
            reason = UnknownReason.BUSY if error.detail == _NO_SESSION else _REASONS[error.kind]
            return Silent(self._clock.now(), reason, error.detail)
        return Answered(self._clock.now(), value)

    # --- snapshots ---

    def _hot(self) -> RedfishHot:
        machine, state = self._machine, self._machine.state
        serial, uuid = machine.shown_identity
        return RedfishHot(
            manufacturer=state.manufacturer,
            model=state.model,
            serial=serial,
            uuid=uuid,
            power=Power(machine.shown_power()),
            boot_phase=BootPhase.OS_BOOTING if state.phase == "installer" else BootPhase(state.phase),
            boot_override=BootOverride(state.boot_override_enabled, state.boot_override, _targets_of(state)),
            pending_bios=dict(state.pending_bios),
            tasks=tuple(self._task(task) for task in machine.tasks() if task.state == "Running"),
            health=self._health(),
            indicator=state.indicator,
            etag=str(state.etag),
        )

    def _health(self) -> Health:
        return SEVERITIES[parts.rollup(self._machine.state)]

    def _task(self, task: TaskState) -> BmcTask:
        done = task.state != "Running"
        return BmcTask(
            uri=TASKS + task.id,
            state=task.state,
            done=done,
            ok=task.state == "Completed" if done else None,
            percent=task.percent(self._machine.now),
            messages=tuple(task.messages),
        )

    def _inventory(self) -> RedfishInventory:
        state = self._machine.state
        off = state.power == "off"
        firmware, unknown = {}, {}
        for item in state.firmware.values():
            if off and not item.component.startswith(_ON_STANDBY_POWER):
                unknown[f"firmware.{item.inventory_id}"] = "the device is off"
            else:
                firmware[item.inventory_id] = FirmwareItem(item.version, True, item.component)
        bmc = next((item.version for item in state.firmware.values() if item.component == "bmc"), None)
        events, unread = logged(state.events, self._epoch, self._clock.now())
        unknown |= {"events": unread} if unread else {}
        inlet, hot = parts.inlet(state)
        sensors = (
            Sensor("Inlet_Temp", "temperature", inlet, "Cel", Health.CRITICAL if hot else Health.OK, "1"),
            Sensor("PowerConsumption", "power", 45.0 if off else 900.0 + 130.0 * len(state.gpus), "W", Health.OK, "1"),
        )
        return RedfishInventory(
            bios=dict(state.bios),
            secure_boot=state.secure_boot,
            boot_order=tuple(state.boot_order),
            firmware=firmware,
            memory_bytes=state.memory_bytes,
            dimms=sum(not parts.missing(state, "dimm", at) for at in range(state.dimms)),
            processors=parts.processors(state),
            nics=tuple(Nic(nic.name, nic.mac, nic.up, int(nic.rate_gbps * 1000)) for nic in parts.listed_nics(state)),
            drives=tuple(self._drive(at, drive) for at, drive in enumerate(state.drives) if self._there("drive", at)),
            sensors=sensors,
            events=events,
            manager=Manager("AST2600", bmc, self._clock.now()),
            parts=tuple(self._parts()),
            abilities=_abilities_of(state),
            integrity=tuple(
                ComponentIntegrity(id_, "SPDM", "1.1.0", enabled=True, measures=True)
                for id_ in self._machine.component_ids
            ),
            unknown=unknown,
        )

    def _there(self, part: str, at: int) -> bool:
        return not parts.missing(self._machine.state, part, at)

    def _drive(self, at: int, drive: DriveState) -> Drive:
        failed = parts.critical(self._machine.state, "drive", at)
        health = Health.CRITICAL if failed else Health.OK
        return Drive(
            drive.id,
            drive.serial,
            drive.wwn,
            drive.model,
            drive.capacity_bytes,
            health,
            failed or parts.predicted(self._machine.state, "drive", at),
            drive.bmc_erases,
        )

    def _parts(self) -> Iterator[Part]:
        """Return the parts as the driver reads them from the wire."""
        state = self._machine.state
        named = [
            ("dimm", "dimm", [str(at + 1) for at in range(state.dimms)]),
            ("psu", "power_supply", [f"1/Power Supply Bay {at + 1}" for at in range(parts.SUPPLIES)]),
            ("fan", "fan", [f"1/FAN{at + 1}" for at in range(parts.FANS)]),
            ("leak", "leak_detector", [f"1/LeakDetector_{at}" for at in range(parts.DETECTORS)]),
        ]
        for part, kind, names in named:
            for at, name in enumerate(names):
                if self._there(part, at):
                    health = Health.CRITICAL if parts.critical(state, part, at) else Health.OK
                    yield Part(kind, name, health, self._serial(part, at))
        yield Part("chassis", "1", SEVERITIES[parts.rollup(state)])  # of its board, and of all that is in it

    def _serial(self, part: str, at: int) -> str | None:
        """Return the serial number that the BMC tells; that of a fan, as most BMCs, it does not."""
        state = self._machine.state
        told = {"dimm": parts.dimm_serial(state, at + 1), "psu": parts.supply_serial(state, at)}
        return told.get(part)
