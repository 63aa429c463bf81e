"""The order of an install: what is checked, what is written, and what is said of it."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import OpenerDirector

from reconciler.installer.attest import prove
from reconciler.installer.client import Client, Patience, Reporter, opener
from reconciler.installer.disks import Disk, find_disk
from reconciler.installer.documents import Attempt, Document, EraseDocument, Malformed, load_any
from reconciler.installer.erase import Eraser
from reconciler.installer.identity import host_key, keep_authorities, write_facts
from reconciler.installer.image import BLOCK, Download, unpacked, verify_signature
from reconciler.installer.kept_key import KeptKey
from reconciler.installer.machine import Failed, Machine, check_identity, say
from reconciler.installer.table import Table, image_table
from reconciler.installer.targets import Target, choose_target, is_done
from reconciler.installer.write import Piece, read_back, write_pieces


def run_attempt(machine: Machine, attempt: Attempt, patience: Patience) -> bool:
    """Carry out one attempt, and tell the server how it ended. Return whether it did what it was for."""
    ca = machine.trust / "ca.pem"
    client = Client(attempt.url, opener(ca, attempt.proxy, redirects=False), patience)
    text = client.call("install.json", seconds=patience.document)
    reporter = Reporter(client, patience)

    def work() -> tuple[str, str]:
        document = load_any(text)
        if isinstance(document, EraseDocument):
            reporter.start(f"erase {', '.join(document.drives)} of {document.node}")
            return "erased", Eraser(machine, document, reporter, patience).run()
        reporter.start(f"{document.image.name} {document.image.version} for {document.node}")
        web = opener(ca, attempt.proxy, redirects=True)
        return "installed", FromMedium(machine, client, web, document, reporter, patience).run()

    return ends_told(reporter, patience, work)


def ends_told(reporter: Reporter, patience: Patience, work: Callable[[], tuple[str, str]]) -> bool:
    """Do the work, and tell how it ended: the last phase, and what to say of it. Return whether it was done."""
    try:
        done, detail = work()
    except Malformed as error:
        reporter.last_word("failed", f"the document is not the contract's: {error}", patience.failed, "document")
    except Failed as error:
        reporter.last_word("failed", str(error), patience.failed, error.cause)
    except OSError as error:
        reporter.last_word("failed", f"{error.filename or 'the installer'}: {error.strerror}", patience.failed)
    except Exception as error:  # noqa: BLE001 - the boundary: a bug of ours is a failure that is told, too
        reporter.last_word("failed", f"a defect of the installer: {type(error).__name__}: {error}", patience.failed)
    else:
        reporter.last_word(done, detail, patience.installed)
        return True
    finally:
        reporter.end()
    return False


class Install(ABC):
    """One document on its way to a disk."""

    def __init__(
        self, machine: Machine, web: OpenerDirector, document: Document, reporter: Reporter, patience: Patience
    ) -> None:
        self._machine, self._web = machine, web
        self._document, self._reporter, self._patience = document, reporter, patience

    @abstractmethod
    def run(self) -> str:
        """Install, and return what to say of it. Nothing is written before all checks have passed."""

    @abstractmethod
    def _target(self, disk: Disk, image: Table) -> Target:
        """Return the way onto the disk."""

    @abstractmethod
    def _facts(self, etc: Path, target: Target) -> None:
        """Write who the system is."""

    def _checked_disk(self) -> Disk:
        """Return the disk that the document means, of a machine and with an image that it may be written for."""
        machine, document = self._machine, self._document
        check_identity(machine, document.machine.serial, document.machine.uuid)
        verify_signature(machine, document.image)
        return find_disk(machine, document.root_disk, self._patience.disk)

    def _fetch(self, disk: Disk) -> str:
        """Write the image as it is downloaded, and make it boot."""
        machine, document = self._machine, self._document
        begun = time.monotonic()
        download = Download(self._web, document.image, self._patience, self._note)
        with unpacked(download, document.image.format) as blocks:
            head = _head(blocks)
            image = image_table(machine, head)
            target = self._target(disk, image)
            pieces = target.pieces()
            self._write(target, pieces, itertools.chain((head,), blocks), str(disk))
        download.check()
        took = time.monotonic() - begun
        self._reporter.tell("written", f"{disk}, in {took:.0f} s", self._patience.certificate)
        target.finish(lambda etc: self._facts(etc, target))
        return f"{document.image.name} {document.image.version} on {disk}, in {time.monotonic() - begun:.0f} s"

    def _write(self, target: Target, pieces: list[Piece], blocks: Iterator[bytes], disk: str) -> None:
        """Write, and compare what the disk gives back. Both count for the percentage."""
        to_disk = [piece for piece in pieces if piece.to.is_block_device()]
        ends, back = max(piece.start + piece.size for piece in pieces), sum(piece.size for piece in to_disk)
        self._reporter.phase("writing", disk)
        target.begin()
        meter = self._meter("written to", disk, ends, 0, ends + back)
        written = write_pieces(blocks, pieces, meter)
        meter = self._meter("read back from", disk, back, ends, ends + back)
        target.written = [one for one in written if one.piece in to_disk]
        read_back(target.written, meter)

    def _meter(self, verb: str, disk: str, size: int, before: int, total: int) -> Callable[[int], None]:
        """Return what takes a count of bytes and tells it as a percentage and a rate."""
        begun = time.monotonic()

        def progress(done: int) -> None:
            rate = done / max(time.monotonic() - begun, 0.001) / 1e6
            detail = f"{done / 1e9:.1f} of {size / 1e9:.1f} GB {verb} {disk}, {rate:.0f} MB/s"
            self._reporter.progress(detail, min(99, (before + done) * 100 // total))

        return progress

    def _note(self, text: str) -> None:
        self._reporter.note(text)


class FromMedium(Install):
    """An attempt of the boot medium: whatever the disk was, and no system runs from it."""

    def __init__(
        self,
        machine: Machine,
        client: Client,
        web: OpenerDirector,
        document: Document,
        reporter: Reporter,
        patience: Patience,
    ) -> None:
        super().__init__(machine, web, document, reporter, patience)
        self._client = client

    def run(self) -> str:
        disk = self._checked_disk()
        if is_done(self._machine, disk, self._document):
            done = f"{disk} has it already; nothing was written"
        else:
            done = self._fetch(disk)
        KeptKey(disk, self._document.nonce).forget()
        return done

    def _target(self, disk: Disk, image: Table) -> Target:
        return choose_target(self._machine, disk, self._document, image)

    def _facts(self, etc: Path, target: Target) -> None:
        """Write who the system is. Its host key is made here; the server signs it, with a quote where that is asked."""
        document = self._document
        kept = KeptKey(target.disk, document.nonce)
        line = host_key(self._machine, etc, document.node, target.keeps_host_key, kept)
        if document.attest:
            prove(self._machine, self._client, line, self._patience.certificate)
        certificate = self._client.call("hostkey", f"{line}\n".encode(), self._patience.certificate).decode()
        write_facts(etc, document, certificate, target.slot)
        keep_authorities(etc, self._machine)
        say("the host key is certified")


def _head(blocks: Iterator[bytes]) -> bytes:
    """Return the first bytes of the image, enough for its table."""
    head = b""
    while len(head) < BLOCK:
        block = next(blocks, b"")
        if not block:
            break
        head += block
    return head
