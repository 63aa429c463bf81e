"""The entry that `image build` prints is one that the spec takes, with what was measured and the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.model.desired import SpecSource
from reconciler.render.golden_image import GoldenImageEntry, Measured, render_entry
from reconciler.spec import load_spec

FLEET = (
    b"apiVersion: reconciler.dev/v1alpha1\nkind: Fleet\nmetadata: {name: f}\nspec:\n"
    b"  redfish: {credentials: bmc, tls: {insecure: true}}\n---\n"
    b"apiVersion: reconciler.dev/v1alpha1\nkind: NodePool\nmetadata: {name: p}\n"
    b"spec: {nodes: [{name: n1, bmc: 'https://10.0.0.1'}]}\n"
)
PHASE = "enter-initrd:leave-initrd:sysinit:ready"
ENTRY = GoldenImageEntry(
    "debian-node", "2026.11.1", "https://images.example.com/x.raw.zst", "a" * 64, None, "812345678B", "", "",
    {"kernel": "6.1.0-28-amd64"}, Measured(("b" * 64, "c" * 64), {PHASE: "d" * 64}),
    command_line='roothash=0f ro "quoted" console=ttyS0',
)  # fmt: skip


@pytest.mark.parametrize("command_line", [ENTRY.command_line, ""])
def test_the_entry_is_valid(command_line: str) -> None:
    text = render_entry(replace(ENTRY, command_line=command_line))
    load_spec(
        {"fleet.yaml": FLEET, "image.yaml": text.encode()}, directory="spec", origin=SpecSource("spec", commit="abc")
    )
    assert f"\n          {PHASE}: {'d' * 64}\n" in text
    assert ("commandLine" in text) is bool(command_line)
