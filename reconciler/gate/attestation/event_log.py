"""The firmware's event log (TCG PC Client Platform Firmware Profile, crypto-agile format), and its replay.

A log is a list of what was measured into PCRs. Whoever rules a host can write any log, so it proves nothing before its
replay gives the quoted PCRs. What the replay binds of an event are its PCR, its sha256 digest and its place; its type
and its data are claims: data count only where their digest is the event's. Unknown types are read like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.gate.attestation.buffers import Malformed, Reader
from reconciler.gate.attestation.keys import SHA256

EV_NO_ACTION: Final = 0x03
EV_SEPARATOR: Final = 0x04
EV_EFI_VARIABLE_DRIVER_CONFIG: Final = 0x80000001
EV_EFI_VARIABLE_AUTHORITY: Final = 0x800000E0

_SPEC_ID: Final = b"Spec ID Event03\0"
_LOCALITY: Final = b"StartupLocality\0"
MAX_LOG: Final = 1 << 20
PCRS: Final = 24


@dataclass(frozen=True, slots=True)
class Event:
    pcr: int
    type: int
    digest: bytes  # sha256
    data: bytes

    @property
    def measured(self) -> bool:
        """Return whether the digest is that of the data, so that the data are what was measured."""
        return hashlib.sha256(self.data).digest() == self.digest


def parse_log(log: bytes) -> tuple[Event, ...]:
    """Return the events of a crypto-agile log, in order. Raise Malformed for one that ends within an event."""
    if len(log) > MAX_LOG:
        raise Malformed(f"the event log has more than {MAX_LOG} bytes")
    reader = Reader(log, "the event log", little=True)
    pcr, kind = reader.u32(), reader.u32()
    reader.take(20)
    header = reader.take(reader.u32())
    if pcr != 0 or kind != EV_NO_ACTION or not header.startswith(_SPEC_ID):
        raise Malformed("the event log is not in the crypto-agile format")
    sizes = _digest_sizes(header)
    return tuple(_events(reader, sizes))


def _digest_sizes(header: bytes) -> Mapping[int, int]:
    """Return the digest size of each hash algorithm that the log uses, from its first event."""
    reader = Reader(header, "the header of the event log", little=True)
    reader.take(len(_SPEC_ID) + 4 + 4)  # platform class; versions, errata and size of integers
    sizes = {reader.u16(): reader.u16() for _ in range(reader.u32())}
    if sizes.get(SHA256) != 32:
        raise Malformed("the event log has no sha256 digests")
    return sizes


def _events(reader: Reader, sizes: Mapping[int, int]) -> Iterator[Event]:
    while reader.left:
        pcr, kind = reader.u32(), reader.u32()
        digests = {}
        for _ in range(reader.u32()):
            algorithm = reader.u16()
            if algorithm not in sizes:
                raise Malformed(f"an event has a digest {algorithm:#06x}, which the log's header does not name")
            digests[algorithm] = reader.take(sizes[algorithm])
        data = reader.take(reader.u32())
        if SHA256 not in digests:
            raise Malformed("an event has no sha256 digest")
        yield Event(pcr, kind, digests[SHA256], data)


def replay(events: Sequence[Event]) -> Mapping[int, bytes]:
    """Return the values of the sha256 bank's PCRs after these events. A PCR without an event has its reset value."""
    values = {index: bytes(32) for index in range(17)}
    values[0] = bytes(31) + _startup_locality(events)
    for event in events:
        if event.type != EV_NO_ACTION:
            if not 0 <= event.pcr < PCRS:
                raise Malformed(f"an event is of PCR {event.pcr}, which no TPM has")
            values[event.pcr] = extend(values.get(event.pcr, bytes(32)), event.digest)
    return values


def extend(value: bytes, digest: bytes) -> bytes:
    """Return a PCR's value after a digest was extended into it."""
    return hashlib.sha256(value + digest).digest()


def _startup_locality(events: Sequence[Event]) -> bytes:
    """Return the last byte that PCR 0 starts with: the locality from which the firmware started the TPM."""
    for event in events:
        if event.type == EV_NO_ACTION and event.pcr == 0 and event.data.startswith(_LOCALITY):
            return event.data[len(_LOCALITY) : len(_LOCALITY) + 1] or b"\0"
    return b"\0"


@dataclass(frozen=True, slots=True)
class Variable:
    """A UEFI_VARIABLE_DATA: a variable as the firmware measured it."""

    vendor: str  # GUID
    name: str
    data: bytes


def read_variable(event: Event) -> Variable:
    """Return the variable of an event whose data were measured. Raise Malformed for any other."""
    if not event.measured:
        raise Malformed("an event of a variable has another digest than its data")
    reader = Reader(event.data, "an event of a variable", little=True)
    vendor = _guid(reader.take(16))
    letters, size = reader.u64(), reader.u64()
    name = reader.take(2 * letters).decode("utf-16-le", errors="replace")
    data = reader.take(size)
    reader.end()
    return Variable(vendor, name, data)


def _guid(raw: bytes) -> str:
    """Return a GUID as it is written: its first three groups are little-endian in memory."""
    groups = raw[3::-1], raw[5:3:-1], raw[7:5:-1], raw[8:10], raw[10:]
    return "-".join(group.hex() for group in groups)
