"""The network of a running system: its image's interfaces on the ports of the machine that have their MAC addresses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from reconciler.lab.hardware.state import DiskImage, MachineState, NicState
from reconciler.model.install import Link
from reconciler.model.installed import HostLink, HostNetwork
from reconciler.model.vocab import LinkKind


def interface(nic: NicState) -> str:
    """Return the interface of a port: "ib3" for the RDMA device "mlx5_3"; other ports keep their name."""
    return f"ib{nic.name.removeprefix('mlx5_')}" if nic.rdma and nic.name.startswith("mlx5_") else nic.name


def host_network(state: MachineState, disk: DiskImage) -> HostNetwork:
    declared = [_link(text) for text in disk.links]
    by_mac = {link.mac.lower(): link for link in declared if link.mac is not None}
    bonds = {member: link.name for link in declared for member in link.members}
    found = []
    for nic in state.nics:
        link = by_mac.get(nic.mac.lower())
        name = interface(nic) if link is None else link.name
        found.append(_host_link(nic.mac.lower(), name, link, master=bonds.get(name), rdma=nic.rdma))
    present = {one.name for one in found}
    found += list(_virtual(declared, present))
    shown = {one.name for one in found}
    gateways = {link.name: (link.gateway,) for link in declared if link.gateway is not None and link.name in shown}
    return HostNetwork(tuple(found), gateways)


@lru_cache(maxsize=1024)
def _link(text: str) -> Link:
    return Link.model_validate_json(text)


@lru_cache(maxsize=1 << 17)
def _host_link(mac: str, name: str, link: Link | None, *, master: str | None, rdma: bool) -> HostLink:
    mtu = link.mtu if link is not None else None
    return HostLink(
        name, "ethernet", None if rdma else mac, master=master, addresses=() if link is None else link.addresses,
        mtu=mtu or (4092 if rdma else 1500),
    )  # fmt: skip


def _virtual(declared: list[Link], present: set[str]) -> Iterator[HostLink]:
    """Yield bonds, then VLANs, which may be on a bond."""
    for kind in (LinkKind.BOND, LinkKind.VLAN):
        for link in declared:
            if link.kind is kind and (kind is LinkKind.BOND or link.parent in present):
                present.add(link.name)
                yield HostLink(
                    link.name, kind.value, parent=link.parent, vlan=link.vlan, mac="02:00:00:00:00:01",
                    mode=(link.mode or "balance-rr") if kind is LinkKind.BOND else None,
                    addresses=link.addresses, mtu=link.mtu or 1500,
                )  # fmt: skip
