"""The lab's installer refuses a disk of another layout where a partition is to be kept, as the real one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.installer import table
from reconciler.installer.disks import Disk
from reconciler.installer.documents import Layout as RealLayout
from reconciler.lab.hardware.install_document import InstallRefused, refuse_loss
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import DiskImage
from reconciler.lab.hardware.timings import TYPICAL
from reconciler.model.install import InstallCause, InstallDocument, InstallImage, Layout, MachineIdentity, RootDisk
from tests.lab.machines import Time, after, boot_disk, boot_installer, deliver, document

GIB = 2**30
LAYOUT = Layout(esp=GIB, root=20 * GIB, state=4 * GIB, data=True)
KEPT = {"layout": LAYOUT, "preserve": ("state", "data")}
ALL = "data, esp, root-a, root-b, state, verity-a, verity-b"
LOST = "{} does not have the layout: it differs at {}; state and data would be lost, so nothing was written"


def installed(machine: Machine, clock: Time, layout: Layout | None) -> None:
    """Let the machine run from a disk that an installer laid out."""
    disk = machine.disk()
    disk.layout = {} if layout is None else {name: int(size) for name, size in layout}
    disk.slot = "" if layout is None else "a"
    boot_installer(machine, clock)


@pytest.mark.parametrize(
    ("has", "differing"),
    [(None, ALL), (LAYOUT.model_copy(update={"state": 2 * GIB}), "data, state")],
)
def test_another_layout_is_refused_where_something_is_to_be_kept(
    clock: Time, wire_machine: Machine, has: Layout | None, differing: str
) -> None:
    installed(wire_machine, clock, has)
    before = dict(wire_machine.state.disks)
    reports = deliver(wire_machine, document(wire_machine, **KEPT))
    after(wire_machine, clock, 2 * TYPICAL.install_s)
    assert reports[-1].phase == "failed"
    assert reports[-1].cause is InstallCause.LAYOUT
    assert reports[-1].detail == LOST.format(wire_machine.state.drives[0].serial, differing)
    assert wire_machine.state.disks == before
    assert wire_machine.state.counters.writes == 0
    boot_disk(wire_machine, clock)
    assert wire_machine.ssh_up, "the old system still boots"


@pytest.mark.parametrize(("has", "keep"), [(LAYOUT, True), (None, False)])
def test_the_same_layout_and_nothing_to_keep_are_written(
    clock: Time, wire_machine: Machine, has: Layout | None, keep: bool
) -> None:
    installed(wire_machine, clock, has)
    reports = deliver(wire_machine, document(wire_machine, **(KEPT if keep else KEPT | {"preserve": ()})))
    after(wire_machine, clock, 2 * TYPICAL.install_s)
    assert reports[-1].phase == "installed"


def test_a_blank_disk_has_nothing_to_lose(clock: Time, blank_machine: Machine) -> None:
    blank_machine.serve = None
    boot_installer(blank_machine, clock)
    reports = deliver(blank_machine, document(blank_machine, **KEPT))
    after(blank_machine, clock, 2 * TYPICAL.install_s)
    assert reports[-1].phase == "installed"


_SIZES = st.integers(1, 4).map(lambda count: count * GIB)
_LAYOUTS = st.builds(Layout, esp=_SIZES, root=_SIZES, state=_SIZES, data=st.booleans())


@given(has=_LAYOUTS, wants=_LAYOUTS)
def test_it_names_the_partitions_that_the_real_one_names(has: Layout, wants: Layout) -> None:
    """The two programs share no code: one runs in an initrd, the other on a simulated disk."""
    disk = Disk("nvme0n1", Path("/dev/nvme0n1"), "S", "", 100 * GIB, 512)
    parts = [
        table.laid_out(RealLayout(**one.model_dump()), disk, table.ROOT[0], table.VERITY[0]) for one in (has, wants)
    ]
    real = table.differences(table.Table("gpt", "", parts[0]), parts[1])
    asked = InstallDocument(
        node="n0", hostname="n0", nonce="n", machine=MachineIdentity(serial="S", uuid=None), layout=wants,
        image=InstallImage(name="x", version="1", url="https://x/1", sha256="00"), root_disk=RootDisk(serial="S"),
        preserve=("data",),
    )  # fmt: skip
    old = DiskImage("x", "1", "00", "S", None, "6.8", "575", "n0", layout={name: int(size) for name, size in has})
    told = ""
    try:
        refuse_loss(asked, old, "S")
    except InstallRefused as refused:
        told = str(refused).partition(": ")[2].partition(";")[0]
    assert told == real
