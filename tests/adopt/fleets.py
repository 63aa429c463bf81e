"""Specs as people write them, in many styles, and nodes that differ from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from reconciler.model import gpus
from reconciler.model import observed as o
from reconciler.model.desired import Fleet
from reconciler.spec import check_spec
from tests import builders as b

BASE: Mapping[str, str] = {
    "fleet.yaml": """# the fleet
apiVersion: reconciler.dev/v1alpha1
kind: Fleet
metadata: {name: test}
spec:
  cluster: main
  redfish: {credentials: bmc, tls: {insecure: true}}
  ssh: {credentials: ssh, hostKeys: {insecure: true}}
  defaults:
    host: {hostname: fromName}   # names are ours
---
apiVersion: reconciler.dev/v1alpha1
kind: Cluster
metadata: {name: main}
spec: {}
""",
    "hardware.yaml": """apiVersion: reconciler.dev/v1alpha1
kind: HardwareProfile
metadata: {name: hgx}
spec:
  inventory: {gpus: 2}
  firmware:   # lower stages first
    - {component: bmc, inventoryId: BMC, version: "2.0", activation: bmc_reset}
    - component: bios     # of the board
      inventoryId: BIOS
      version:   '2.0'    # in odd quotes
      activation: reboot
  bios:
    attributes:
      SriovGlobalEnable: Enabled   # for RDMA

      NumaNodesPerSocket: NPS1
  bootOrder: [Hdd, Pxe]
""",
    "images.yaml": f"""apiVersion: reconciler.dev/v1alpha1
kind: GoldenImage
metadata: {{name: ubuntu-gpu}}
spec:
  versions:
    - {{version: "2026.11.1", url: "https://images/x", sha256: {b.SHA}}}
    - {{version: "2026.10.2", url: "https://images/y", sha256: {"cd" * 32}}}
""",
    "personas.yaml": """apiVersion: reconciler.dev/v1alpha1
kind: Persona
metadata: {name: training}
spec:
  labels: {workload: training}
  taints:
    - {key: nvidia.com/gpu, value: present, effect: NoSchedule}   # they must ask for GPUs
  gpu:
    mig: disabled
  host:
    sysctls: &tuned {vm.swappiness: "1"}
    services: {containerd: running}
""",
}
HEAD = """# pool {name}: do not reorder
apiVersion: reconciler.dev/v1alpha1
kind: NodePool
metadata: {{name: {name}}}
spec:
  image: {{name: ubuntu-gpu, version: "2026.11.1"}}  # pinned
  hardware: hgx
  persona: training
"""


def entry(style: int, name: str, octet: str, rack: str) -> str:
    """One entry of a pool, with comments in it."""
    if style == 0:
        return (
            f"    # rack {rack}\n    - name: {name}  # as labelled\n      bmc: https://10.0.0.{octet}\n"
            f"      host: 10.0.1.{octet}\n\n      domains: {{rack: {rack}}}\n"
        )
    quoted = f'name: "{name}", bmc: "https://10.0.0.{octet}", host: "10.0.1.{octet}"'
    if style == 1:
        return f"    - {{{quoted}, domains: {{rack: {rack}}}}}   # one line\n"
    return f"    - {{{quoted},\n       domains: {{rack: {rack}}}, labels: {{tier: '{rack}'}}}}\n"


@st.composite
def specs(draw: st.DrawFn) -> dict[str, str]:
    """Files of a spec: pools of range entries, of single ones, and of rows of a CSV file."""
    files, octet, number = dict(BASE), 1, 1
    for pool in ("train", "infer")[: draw(st.integers(1, 2))]:
        text = HEAD.format(name=pool)
        if draw(st.booleans()):
            text += "  host: {sysctls: {vm.swappiness: '1'}}\n"
        entries = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=3))
        rows = draw(st.integers(0, 3))
        if not entries and not rows:
            rows = 1
        if entries:
            text += "  nodes:\n"
        for style, size in entries:
            last = number + size - 1
            name = f"gpu-{number:03d}" if size == 1 else f"gpu-[{number:03d}-{last:03d}]"
            octets = str(octet) if size == 1 else f"[{octet}-{octet + size - 1}]"
            text += entry(style, name, octets, f"r{number}")
            number, octet = last + 1, octet + size
        if rows:
            text += f"  inventory: {pool}.csv\n"
            lines = ["name,bmc,host,domains.rack"]
            for _ in range(rows):
                lines.append(f"gpu-{number:03d},https://10.0.0.{octet}, 10.0.1.{octet},r{number}")
                number, octet = number + 1, octet + 1
            files[f"{pool}.csv"] = "\n".join(lines) + draw(st.sampled_from(["\n", ""]))
        files[f"{pool}.yaml"] = text
    return files


def load(files: Mapping[str, str]) -> Fleet:
    contents = {name: text.encode() for name, text in files.items()}
    fleet, problems = check_spec(contents, directory="fleet-spec")
    assert fleet is not None, "\n".join(map(str, problems))
    return fleet


@st.composite
def nodes_as(draw: st.DrawFn, name: str) -> o.Observed:
    """A node that may differ in everything that is adopted."""

    def maybe(*values: Any) -> Any:
        return draw(st.sampled_from([values[0], *values]))

    bios = {"SriovGlobalEnable": maybe("Enabled", "Disabled"), "NumaNodesPerSocket": maybe("NPS1", "NPS 4: all", 7)}
    firmware = {"BMC": o.FirmwareItem(maybe("2.0", "01.05")), "BIOS": o.FirmwareItem(maybe("2.0", "2.1 (beta)"))}
    image = maybe(
        o.ImageIdentity("ubuntu-gpu", "2026.11.1", b.SHA, "D1", None, booted_disk="D1"),
        o.ImageIdentity("ubuntu-gpu", "2026.10.2", "cd" * 32, "D1", None, booted_disk="D1"),
        o.ImageIdentity("ubuntu-gpu", "2026.10.2", "ee" * 32, "D1", None, booted_disk="D1"),
    )
    mig = maybe(False, True)
    facts = b.facts(
        name,
        hostname=maybe(name, f"{name}-x.example.com"),
        image=image,
        sysctls={"vm.swappiness": maybe("1", "60")},
        services={"containerd": o.Service(maybe(True, False), True)},
        gpus=tuple(
            b.gpu(at, mig_current=mig, mig_devices=(gpus.MigDevice(at, "3g.40gb", "u"),) * mig) for at in (0, 1)
        ),
    )
    labels = {"workload": maybe("training", "other"), "tier": maybe(f"r{int(name[-3:])}", "x")}
    member = b.member(name, labels=maybe(labels, {"tier": labels["tier"]}))
    inventory = b.inventory(bios=bios, firmware=firmware, boot_order=maybe(("Hdd", "Pxe"), ("Pxe", "Hdd")))
    silent = draw(st.integers(0, 9)) == 0
    return b.observed(name, inventory=inventory, member=member, host=b.silent() if silent else facts)
