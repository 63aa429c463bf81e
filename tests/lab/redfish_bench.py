"""A lab machine with its Redfish service on loopback, a clock that tests set, and clients to talk to it."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import json
import ssl
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import sushy
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sushy import auth as sushy_auth

from reconciler.lab.hardware import bios
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import DiskImage, DriveState, FirmwareState, GpuState, MachineState, NicState
from reconciler.lab.wire.redfish import Quirks, RedfishServer

T = TypeVar("T")

USERNAME, PASSWORD = "admin", "correct horse"
EPOCH = dt.datetime(2026, 11, 1, 12, 0, 0, tzinfo=dt.UTC)
SYSTEM = "/redfish/v1/Systems/1"
MANAGER = "/redfish/v1/Managers/1"
CHASSIS = "/redfish/v1/Chassis/1"
MEDIA = f"{MANAGER}/VirtualMedia/Cd"
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
TASKS = "/redfish/v1/TaskService/Tasks"
BIOS_IMAGE = "https://firmware.example.com/bios-2.4.bin"
BMC_IMAGE = "https://firmware.example.com/bmc-01.05.03.bin"
ISO = "http://10.20.0.2:8089/t0k3n/boot.iso"


@dataclass(frozen=True, slots=True)
class Trust:
    """A certificate authority in a file, and the TLS context of a server on 127.0.0.1."""

    ca: Path
    server: ssl.SSLContext

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))


def make_trust(directory: Path) -> Trust:
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test BMC CA")])
    start, end = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2046, 1, 1, tzinfo=dt.UTC)

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
        )

    ca_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        builder(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(*[name == "sign" for name in _USAGES]), critical=True)
        .add_extension(ca_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bmc")]), key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_id), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    chain, private, authority = directory / "bmc.pem", directory / "bmc.key", directory / "ca.pem"
    authority.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    chain.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, private)
    return Trust(authority, context)


_USAGES = ("signature", "commitment", "key", "data", "agreement", "sign", "crl", "encipher", "decipher")


@dataclass(slots=True)
class Clock:
    """The machine's clock in seconds; only tests move it."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


def make_machine(clock: Clock) -> Machine:
    drives = [
        DriveState(f"NVMe{n}", f"S6NANA0W{n:06d}", f"eui.36344630{n:08x}", "SAMSUNG MZQL2960", 960 * 10**9)
        for n in range(5)
    ]
    gpus = [
        GpuState(
            n,
            f"00000000:{0x1B + 16 * n:02X}:00.0",
            f"GPU-9dad5bfd-a732-23fe-40ad-{n:012x}",
            "NVIDIA H100 80GB HBM3",
            f"16529230030{n:02d}",
            "96.00.89.00.01",
        )
        for n in range(8)
    ]
    nics = [NicState(f"mlx5_{n}", f"94:6d:ae:00:00:{n:02x}", rdma=True, rate_gbps=400) for n in range(8)]
    nics += [NicState(f"eth{n}", f"7c:c2:55:00:00:{n:02x}", rdma=False, rate_gbps=10) for n in range(2)]
    firmware = [
        FirmwareState("bmc", "BMC", "01.04.00", "bmc_reset", minutes=5),
        FirmwareState("bios", "BIOS", "2.3", "reboot"),
        FirmwareState("nic0", "NIC0", "28.42.1000", "power_cycle"),
    ]
    image = DiskImage(
        "ubuntu-gpu", "1", "0" * 64, drives[0].serial, None, "6.8.0-48-generic", "570.124.06", "gpu-a001", services={}
    )
    state = MachineState(
        "gpu-a001",
        "S889914X3710910",
        "00000000-0000-0000-0000-7cc25550a8ff",
        "Supermicro",
        "SYS-821GE-TNHR",
        {},
        bios=bios.defaults(bios.KNOWN),
        gpus=gpus,
        drives=drives,
        nics=nics,
        firmware={item.inventory_id: item for item in firmware},
        disks={drives[0].serial: image},
    )
    images = {BIOS_IMAGE: {"BIOS": "2.4"}, BMC_IMAGE: {"BMC": "01.05.03"}}
    machine = Machine(state, clock, firmware_images=images)
    machine.start("on")
    return machine


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def message_id(self) -> str:
        return str(self.body["error"]["@Message.ExtendedInfo"][0]["MessageId"]).rsplit(".", 1)[1]


class Bench:
    """A machine's server and a plain client. They run in their own thread, because sushy blocks the test's."""

    def __init__(self, trust: Trust, quirks: Quirks) -> None:
        self.trust = trust
        self.clock = Clock()
        self.machine = make_machine(self.clock)
        self.server = RedfishServer(self.machine, username=USERNAME, password=PASSWORD, quirks=quirks, epoch=EPOCH)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = f"https://127.0.0.1:{self.run(self.server.start(self.trust.server))}"
        self._client = self.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._client.close())
        self.run(self.server.stop())
        self.run(asyncio.sleep(0.01))  # lets TLS transports close
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self.trust.client(), force_close=True)
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=5))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        login: bool = True,
        token: str | None = None,
        timeout: float = 5,
        **headers: str,
    ) -> Answer:
        """Send one request. Keywords are headers: `If_Match="..."`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["X-Auth-Token"] = token
        elif login:
            given["Authorization"] = aiohttp.encode_basic_auth(USERNAME, PASSWORD)
        given.setdefault("Accept-Encoding", "identity")
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()

        async def talk() -> Answer:
            limit = aiohttp.ClientTimeout(total=timeout)
            async with self._client.request(method, self.url + path, data=data, headers=given, timeout=limit) as reply:
                return Answer(reply.status, reply.headers, await reply.text())

        return self.run(talk())

    def get(self, path: str, **options: Any) -> Any:
        """Return the document at a path, which must exist."""
        answer = self.call("GET", path, **options)
        assert answer.status in (200, 202), answer
        return answer.body

    @contextmanager
    def sushy(self) -> Iterator[sushy.Sushy]:
        """Open a session of sushy, and delete it afterwards."""
        auth = sushy_auth.SessionAuth(USERNAME, PASSWORD)
        root = sushy.Sushy(
            self.url, verify=str(self.trust.ca), auth=auth, server_side_retries=1, server_side_retries_delay=0.01
        )
        try:
            yield root
        finally:
            auth.close()
            root._conn.close()
            root._auth = None  # or __del__ would log out again

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.machine.catch_up()
