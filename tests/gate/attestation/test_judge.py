"""Event logs: the replay of real ones, and what each event of a log can and can't prove."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.event_log import (
    EV_EFI_VARIABLE_AUTHORITY,
    EV_EFI_VARIABLE_DRIVER_CONFIG,
    EV_SEPARATOR,
    Event,
    parse_log,
    replay,
)
from reconciler.gate.attestation.judge import judge_boot
from reconciler.model.measurements import BootMeasurements, FirmwareReference
from tests.gate.attestation import machine as m

EVENTS = m.EVENTS
EV_EFI_ACTION = 0x80000007
DB = bytes.fromhex("cbb219d73a3d9645a3bcdad00e67656f")  # GUID of db and dbx, as it is in memory
SHIM = bytes.fromhex("50ab5d6046e00043abb63dd810dd8b23")


def reasons(events: tuple[Event, ...], **changes: object) -> tuple[str, ...]:
    """Judge a machine that measured just these events."""
    return m.judge(events=events, pcrs=dict(replay(events)) | {11: bytes.fromhex(m.PCRS[11])}, **changes)


def measured(pcr: int, kind: int, data: bytes) -> Event:
    return Event(pcr, kind, hashlib.sha256(data).digest(), data)


def variable(vendor: bytes, name: str, data: bytes) -> bytes:
    return vendor + struct.pack("<QQ", len(name), len(data)) + name.encode("utf-16-le") + data


def test_a_real_log_replays_to_the_pcrs_of_its_boot() -> None:
    found = replay(EVENTS)
    assert {index: found[index].hex() for index in m.PCRS} == m.PCRS
    assert m.judge() == ()


@pytest.mark.parametrize(
    ("name", "pcr", "value"),
    [  # as tpm2_eventlog of tpm2-tools 5.4 computes it
        ("keylime_binary_bios_measurements-secureboot", 7, "2f96e1f1bf7f91b6f17e1bcb823e717e"),
        ("tpm2tools_event-gce-ubuntu-2104-log.bin", 0, "24af52a4f429b71a3184a6d64cddad17"),
        ("tpm2tools_event-gce-ubuntu-2104-log.bin", 1, "f7dab5fda6b082e0ec1a12c43dd996ee"),
        ("tpm2tools_event-sd-boot-fedora37.bin", 0, "464a812afa3f88d8a5f1fe7e71df4195"),
        ("tpm2tools_event-bootorder.bin", 2, "6bb89e2dc338e478b9b58d7c987c67fd"),
    ],
)
def test_logs_of_others_are_read(samples: Path, name: str, pcr: int, value: str) -> None:
    found = replay(parse_log((samples / "tpm2" / name).read_bytes()))
    assert found[pcr].hex()[:32] == value


def test_a_log_that_was_cut_off_is_never_taken_for_whole() -> None:
    for size in range(len(m.LOG)):
        try:
            events = parse_log(m.LOG[:size])
        except Malformed:
            continue
        assert m.judge(events=events), f"the first {size} bytes are enough"


@given(st.integers(0, len(m.LOG) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_a_changed_byte_is_malformed_or_changes_no_verdict_for_the_better(at: int, by: int) -> None:
    log = bytearray(m.LOG)
    log[at] ^= by
    try:
        events = parse_log(bytes(log))
        values = replay(events)
    except Malformed:
        return
    # What no quote binds (types, texts, other banks) may differ; what was started and the keys may not.
    if not m.judge(events=events):
        assert {index: values[index].hex() for index in range(8)} == {index: m.PCRS[index] for index in range(8)}


@given(st.binary(max_size=300))
def test_garbage_is_malformed(log: bytes) -> None:
    with pytest.raises(Malformed):
        parse_log(log)


def test_unknown_types_of_events_are_read_and_replayed() -> None:  # keylime 1393
    events = tuple(replace(event, type=0x8000F00D) if event.pcr in (0, 1, 5) else event for event in EVENTS)
    assert reasons(events) == ()


def test_a_quote_must_be_of_all_that_is_judged() -> None:
    values = {index: value for index, value in replay(EVENTS).items() if index not in (2, 11)}
    assert m.judge(pcrs=values) == ("the quote is not of PCRs 2, 11",)


def test_what_was_started_is_exactly_what_is_declared() -> None:
    assert "was started that is not declared" in m.judge(boot=replace(m.BOOT, applications=(m.UKI,)))[0]
    assert "were started, not" in m.judge(boot=replace(m.BOOT, applications=(m.UKI, m.BOOT_LOADER)))[0]
    assert "were started, not" in m.judge(boot=replace(m.BOOT, applications=(m.BOOT_LOADER, m.UKI, m.UKI)))[0]
    assert m.judge(boot=replace(m.BOOT, applications=(m.UKI,), loaders=(m.BOOT_LOADER,))) == ()
    own = FirmwareReference({}, {}, applications=(m.BOOT_LOADER,))
    assert m.judge(
        boot=replace(m.BOOT, applications=(m.UKI,)), platform=replace(m.PLATFORM, firmware=(own,))
    ) == ()  # fmt: skip


@pytest.mark.parametrize("kind", [0x03 + 1, EV_EFI_ACTION, 0x80000006, 0xDEAD])
def test_a_program_stays_one_whatever_its_event_is_called(kind: int) -> None:
    """Whoever rules the host writes types, and can even give the bytes that were measured of a program."""
    program = b"MZ" + bytes(400)
    for data in (b"", program, b"Returning from EFI Application"):
        event = Event(4, kind, hashlib.sha256(program).digest(), data)
        assert any("not declared" in reason for reason in reasons((*EVENTS, event)))


def test_secure_boot_must_be_on_under_the_declared_keys() -> None:
    off = tuple(
        measured(7, event.type, event.data[:-1] + b"\0") if b"S\0e\0c\0u\0r\0e\0" in event.data else event
        for event in EVENTS
    )
    assert reasons(off) == ("Secure Boot was off",)
    on_too = (*off, next(event for event in EVENTS if b"S\0e\0c\0u\0r\0e\0" in event.data))
    assert reasons(on_too) == ("Secure Boot was off",)
    for name in ("pk", "kek", "db", "dbx"):
        found = m.judge(platform=m.keys(**{name: ("0" * 64,)}))
        assert any(reason.startswith(f"{name} is ") for reason in found)
    assert m.judge(platform=m.keys(dbx=("0" * 64, *m.KEYS.dbx))) == ()
    without = tuple(event for event in EVENTS if b"d\0b\0x\0" not in event.data)
    assert "PCR 7 has no event of the variable dbx" in reasons(without)


def test_an_unknown_event_of_pcr_7_is_refused() -> None:
    for event, why in (
        (measured(7, EV_EFI_ACTION, b"UEFI Debug Mode"), "which is not declared"),
        (measured(7, EV_SEPARATOR, b"\xff\xff\xff\xff"), "which is not declared"),  # the firmware met an error
        (Event(7, EV_SEPARATOR, bytes(32), bytes(4)), "which is not declared"),
        (measured(7, EV_EFI_VARIABLE_DRIVER_CONFIG, variable(SHIM, "db", b"x")), "variable 'db', which is not"),
        (measured(7, EV_EFI_VARIABLE_AUTHORITY, variable(DB, "db", b"another key")), "a program was verified by 'db'"),
        (measured(7, EV_EFI_VARIABLE_AUTHORITY, variable(SHIM, "MokList", b"key")), "a program was verified by 'MokL"),
        (Event(7, EV_EFI_VARIABLE_AUTHORITY, bytes(32), EVENTS[20].data), "which is not declared"),
    ):
        assert any(why in reason for reason in reasons((*EVENTS, event))), why
    mok = measured(7, EV_EFI_VARIABLE_AUTHORITY, variable(SHIM, "MokList", b"key"))
    declared = m.keys(authorities=(hashlib.sha256(b"key").hexdigest(),))
    assert reasons((*EVENTS, mok), platform=declared) == ()


def test_the_value_of_pcr_11_names_the_phase() -> None:
    boot = replace(m.BOOT, pcr11={"enter-initrd": "0" * 64, "start": m.PCRS[11]})
    assert judge_boot(replay(EVENTS), EVENTS, boot, m.PLATFORM, m.VERSIONS).phase == "start"
    assert "no phase of the declared image has" in m.judge(boot=BootMeasurements(m.BOOT.applications, {}))[0]


def test_firmware_is_judged_by_the_reference_of_its_version() -> None:
    assert m.judge(versions={"bios": "2.0"}) == ("no reference is declared for bios 2.0",)
    assert m.judge(versions={}) == ("no reference is declared for bios of an unknown version",)
    assert m.judge(versions=None) == ()
    wrong = FirmwareReference({"bios": "1.0"}, {"0": "0" * 64})
    assert "the firmware is not the declared one" in m.judge(platform=replace(m.PLATFORM, firmware=(wrong,)))[0]
    assert m.judge(platform=replace(m.PLATFORM, firmware=(wrong, *m.PLATFORM.firmware))) == ()
    assert m.judge(platform=replace(m.PLATFORM, firmware=())) == ()


def test_pcr_1_is_replayed_and_not_judged() -> None:  # keylime PR 1050: boot entries and MAC addresses are in it
    other = measured(1, 0x80000002, b"Boot0003 with a MAC address")
    assert reasons((*EVENTS, other)) == ()
    assert m.judge(events=(*EVENTS, other))[0].startswith("the event log does not explain PCR 1")
