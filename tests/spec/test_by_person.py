"""How a NodePool says that a person reimages its nodes, and what that forbids."""

from __future__ import annotations

import pytest

from tests.spec.example import Edit, load, messages

POOL = """\
apiVersion: reconciler.dev/v1alpha1
kind: NodePool
metadata: {{name: edge}}
spec:
  reimagedBy: person
  domains: {{rack: r9}}
  nodes: [{{name: edge-1, host: 10.9.0.1, {more}}}]
  {settings}
"""

UNSET = "bios: {attributes: {BootTimeout: null}}"  # which the example sets for all nodes


def pool(more: str = "serial: S9", settings: str = UNSET) -> Edit:
    return ("edge.yaml", "", POOL.format(more=more, settings=settings))


def test_it_arrives() -> None:
    nodes = load(pool()).nodes
    assert [name for name, node in nodes.items() if node.by_person] == ["edge-1"]
    assert load(pool()).digest != load(("edge.yaml", "", POOL.format(more="serial: S9", settings=UNSET).replace(
        "  reimagedBy: person\n", ""))).digest  # fmt: skip


@pytest.mark.parametrize(
    ("more", "settings", "why"),
    [
        ("hostname: one", UNSET, "node 'edge-1' has no serial, by which alone its machine is known"),
        ("serial: S9, bmc: https://10.9.1.1", UNSET, "node 'edge-1' has a bmc, and the pool says"),
        ("serial: S9", "labels: {}", "BIOS setting BootTimeout of nodes of pool 'edge': nobody reads it"),
        ("serial: S9", "hardware: hgx-h100", "firmware of nodes of pool 'edge': nobody reads it without a BMC"),
        ("serial: S9", "hardware: hgx-h100", "memory of the inventory of nodes of pool 'edge': nobody reads it"),
        ("serial: S9", "hardware: hgx-h100", "BIOS settings of nodes of pool 'edge': nobody reads it"),
    ],
)
def test_what_needs_a_bmc_is_refused(more: str, settings: str, why: str) -> None:
    assert any(why in message for message in messages(pool(more, settings)))


@pytest.mark.parametrize("image", ["", "\n  image: {name: ubuntu-gpu, version: 2026.11.1}"])
def test_a_persona_can_have_nothing_kept_where_a_person_writes_the_disk(image: str) -> None:
    persona = ("persona.yaml", "  gpu: {mig: {3g.40gb: 2}}", "  gpu: {mig: {3g.40gb: 2}}\n  preserve: [/data]")
    told = messages(persona, pool(settings=f"persona: inference\n  {UNSET}{image}"))
    why = "preserve: it would not be kept: a person writes the disks of pool 'edge', and what is kept is up to that"
    assert [line for line in told if line.startswith("persona.yaml:") and why in line], told
