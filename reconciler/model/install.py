"""The documents of the install contract, version 1: those a machine's installer is given, and those it sends back.

docs/reference/installer-contract.md describes the calls that carry them. The installer of this project
(reconciler/installer) reads the same documents with nothing but Python's own library, since it runs in an initrd.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reconciler.model.vocab import ImageFormat, LinkKind

if TYPE_CHECKING:
    from reconciler.model.network import DesiredNetwork

FORMAT: Final = "1.0"
ERASE_FORMAT: Final = "1.2"
CREDENTIAL_SIZE: Final = 4096  # bytes of the placeholder on the boot medium
MARKER: Final = b"@@RECONCILER-ATTEMPT@@"  # the placeholder begins with it, and is spaces from there to its end
CREDENTIAL_NAME: Final = "attempt.cred"


class ContractDocument(BaseModel):
    """The base of all that is sent: a key that one side does not know is a mistake, not growth."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class InstallPhase(StrEnum):
    """The phases that an installer reports. INSTALLED, ERASED and FAILED are its last words."""

    STARTED = "started"  # it has read its document
    WRITING = "writing"  # from the first byte that changes a disk
    WRITTEN = "written"  # what is on the disk was read back, and its digest agrees
    INSTALLED = "installed"  # the machine will boot the image; it powers off now
    ERASING = "erasing"  # from the first command that destroys data
    ERASED = "erased"  # every drive of the document ended its erase, with evidence; it powers off now
    FAILED = "failed"  # `detail` says why; it powers off now


class InstallCause(StrEnum):
    """Why an install failed. All but FETCH and DISK stay until the spec, the image or the machine changes."""

    DOCUMENT = "document"  # it is not the contract's, or asks for what this installer can't do
    MACHINE = "machine"  # the document is for another one
    ROOT_DISK = "root_disk"  # no disk matches, or more than one
    SIGNATURE = "signature"  # it does not verify, or the installer lacks the key
    IMAGE = "image"  # its bytes are not those that were signed, or it does not fit the disk, layout or arguments
    LAYOUT = "layout"  # the disk has another one, and what is to be preserved would be lost
    FETCH = "fetch"  # the image can't be had
    DISK = "disk"  # the disk fails


class AttemptCredential(ContractDocument):
    """The file on the boot medium that tells an installer where its document is. Nobody signs it: it is not trusted.

    Without an `address`, the installer asks DHCP.
    """

    url: Annotated[str, Field(description="https://host:port/<token>, without a slash at its end.")]
    mac: Annotated[str | None, Field(description="The port to use. Absent: the first with a link.")] = None
    address: Annotated[str | None, Field(description="Address with prefix length: 10.0.0.7/24.")] = None
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    vlan: Annotated[int | None, Field(ge=1, le=4094)] = None
    proxy: Annotated[str | None, Field(description="http://host:port that all calls go through.")] = None
    format: str = FORMAT


class MachineIdentity(ContractDocument):
    """The machine that the document is for. Each value given must equal SMBIOS (DMI), or the install fails."""

    serial: str | None
    uuid: str | None


class InstallImage(ContractDocument):
    """The image to write."""

    name: str
    version: str
    url: Annotated[str, Field(description="http, https or oci.")]
    sha256: Annotated[str, Field(description="Digest of the file at `url`, as it is fetched.")]
    format: ImageFormat = ImageFormat.RAW_ZSTD
    size: Annotated[int | None, Field(description="Bytes of the file at `url`.")] = None
    signature: Annotated[
        str | None,
        Field(description="Signature of minisign, or bundle of cosign, over the line `<name> <version> <sha256>`."),
    ] = None
    key: Annotated[str | None, Field(description="Name of the public key. The installer has the keys.")] = None


class RootDisk(ContractDocument):
    """The one disk to write. Each value that is given must match."""

    serial: str | None
    wwn: str | None = None


class Layout(ContractDocument):
    """Sizes in bytes of the partitions esp, root-a, root-b and state. `data` takes what is left, or there is none.

    An installer given a layout writes the image's root into the slot that is not in use, and keeps the partitions that
    `preserve` names. Without a layout it writes the image over the whole disk.
    """

    esp: int
    root: int
    state: int
    data: bool = True


class Link(ContractDocument):
    """A network interface of the installed system."""

    name: Annotated[str, Field(description="Name in the installed system.")]
    kind: LinkKind = LinkKind.ETHERNET
    mac: Annotated[str | None, Field(description="Of an ethernet port: what finds it.")] = None
    members: Annotated[tuple[str, ...], Field(description="Of a bond: names of its ports.")] = ()
    mode: Annotated[str | None, Field(description="Of a bond: 802.3ad, active-backup, ...")] = None
    parent: Annotated[str | None, Field(description="Of a VLAN: the link that it is on.")] = None
    vlan: Annotated[int | None, Field(ge=1, le=4094, description="Of a VLAN: its id.")] = None
    addresses: Annotated[tuple[str, ...], Field(description="With prefix length: 10.0.0.7/24.")] = ()
    gateway: str | None = None
    mtu: int | None = None


class Network(ContractDocument):
    """The network of the installed system. What is not here is not set up."""

    links: tuple[Link, ...]
    dns: tuple[str, ...] = ()


class SshTrust(ContractDocument):
    """The users that the installed system's sshd lets in: public keys of the CAs that certify their keys."""

    user_ca: tuple[str, ...] = ()


class Then(StrEnum):
    POWER_OFF = "power_off"
    ERASE = "erase"  # of an EraseDocument, and of no other


class InstallDocument(ContractDocument):
    """All that an installer is told for one attempt. It holds no secret but the nonce."""

    node: str
    hostname: str
    nonce: Annotated[str, Field(description="Ends up in /etc/reconciler/image.json. One that is there is done.")]
    machine: MachineIdentity
    image: InstallImage
    root_disk: RootDisk
    layout: Layout | None = None
    preserve: Annotated[tuple[str, ...], Field(description="Names of partitions to keep: state, data.")] = ()
    network: Network | None = None
    ssh: SshTrust = SshTrust()
    kernel_arguments: Annotated[tuple[str, ...], Field(description="Added to the image's command line.")] = ()
    attest: Annotated[bool, Field(description="Whether the host key is certified only after a quote of the TPM.")] = (
        False
    )
    then: Then = Then.POWER_OFF
    format: str = FORMAT


class EraseDocument(ContractDocument):
    """All that an installer is told that destroys the data of drives, since version 1.1. It writes nothing else.

    Since 1.2 a drive that refuses does not keep it from the others.
    """

    node: str
    nonce: str
    machine: MachineIdentity
    drives: Annotated[
        tuple[str, ...], Field(min_length=1, description="Serial numbers, exactly as the drives tell them.")
    ]
    then: Then = Then.ERASE
    format: str = ERASE_FORMAT


AnyDocument = InstallDocument | EraseDocument


class DriveSample(ContractDocument):
    """A few bytes of a drive, as a digest. `blank`: all of them are equal."""

    offset: int
    digest: str
    blank: bool


class Erasure(ContractDocument):
    """The evidence of one drive's erase, so far. The server judges it. `log`: of a sanitize, its log page's bytes."""

    serial: str
    model: str
    firmware: str
    method: str
    tool: Annotated[str, Field(description="The program and its version.")]
    log_before: Annotated[str, Field(description="In hexadecimal, read before the erase was begun.")] = ""
    log: str = ""
    samples: tuple[DriveSample, ...] = ()
    samples_after: tuple[DriveSample, ...] = ()
    ended: bool = False
    failed: Annotated[
        str, Field(description="Since 1.2: why this drive is not erased, and what to do. The other drives go on.")
    ] = ""


class InstallStatus(ContractDocument):
    """A report that an installer sends of itself."""

    phase: InstallPhase
    detail: str = ""
    percent: Annotated[int | None, Field(ge=0, le=100)] = None
    erasure: Annotated[Erasure | None, Field(description="Of the drive that is being erased.")] = None
    cause: Annotated[InstallCause | None, Field(description="Of `failed`. Absent: it may end otherwise next time.")] = (
        None
    )


class AttestationBegin(ContractDocument):
    """The TPM's keys: an endorsement key, its certificate when the TPM has one, and the key that will sign quotes.

    Bytes are base64: a certificate in DER, keys as TPM2B_PUBLIC.
    """

    ek: str
    ak: str
    ek_cert: str | None = None


class AttestationChallenge(ContractDocument):
    """A secret that only the TPM of this endorsement key can open (TPM2_ActivateCredential), and a nonce used once.

    `credential` and `secret` are TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET; all three are base64.
    """

    credential: str
    secret: str
    nonce: str


class AttestationFinish(ContractDocument):
    """The opened secret and the quote over sha256(nonce || SSH host key), with the event log that explains it.

    Bytes are base64: `quote` is TPMS_ATTEST, `signature` TPMT_SIGNATURE, `event_log` the firmware's binary log.
    """

    secret: str
    quote: str
    signature: str
    pcrs: Annotated[dict[int, str], Field(description="Values of the sha256 bank, in hexadecimal.")]
    event_log: str
    host_key: Annotated[str, Field(description="The public key, a line as in ssh_host_ed25519_key.pub.")]


C = TypeVar("C", bound=ContractDocument)

CONTRACT: Final[dict[str, type[ContractDocument]]] = {
    "install-attempt": AttemptCredential,
    "install-document": InstallDocument,
    "erase-document": EraseDocument,
    "install-status": InstallStatus,
    "attestation-begin": AttestationBegin,
    "attestation-challenge": AttestationChallenge,
    "attestation-finish": AttestationFinish,
}


class ContractError(ValueError):
    """A document that is not the contract's. The text says which key is wrong."""


def in_place_folder(nonce: str) -> str:
    """Return where an install from the running system has its files on the node, until the next boot."""
    return f"/run/reconciler-install/{nonce}"


def dump_contract(document: ContractDocument) -> str:
    """Return canonical JSON: sorted keys, no line break."""
    values = document.model_dump(mode="json")
    return json.dumps(values, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def load_contract(kind: type[C], text: str | bytes) -> C:
    """Read a document of `kind`. Raise ContractError for anything else, and for another major version."""
    try:
        value = kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise ContractError(f"{where}: {first['msg']}") from None
    stated = str(getattr(value, "format", FORMAT))
    if stated.partition(".")[0] != FORMAT.partition(".")[0]:
        raise ContractError(f"format: {stated} is not readable here, only {FORMAT.partition('.')[0]}.x is")
    return value


def fill_credential(attempt: AttemptCredential) -> bytes:
    """Return the placeholder's bytes for one attempt: JSON, then spaces. Raise ContractError when it does not fit."""
    text = dump_contract(attempt).encode()
    if len(text) > CREDENTIAL_SIZE:
        raise ContractError(f"the attempt takes {len(text)} bytes; the boot medium has room for {CREDENTIAL_SIZE}")
    return text.ljust(CREDENTIAL_SIZE)


def empty_credential() -> bytes:
    """Return the placeholder as it is built into the boot medium."""
    return MARKER.ljust(CREDENTIAL_SIZE)


def install_network(network: DesiredNetwork | None) -> Network | None:
    """Return the network for the install document; None where the spec declares none."""
    if network is None:
        return None
    links = tuple(
        Link(
            name=link.name, kind=link.kind, mac=link.mac, members=link.members, mode=link.mode, parent=link.parent,
            vlan=link.vlan, addresses=link.addresses, gateway=link.gateway, mtu=link.mtu,
        )
        for link in network.links
    )  # fmt: skip
    return Network(links=links, dns=network.dns)
