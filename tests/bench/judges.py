"""What the judges of the gate are tried on: whole outputs, and the spoilt ones and mishaps that come of them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.report import Table
from tests.conftest import ROOT
from tests.gate.test_table import counted

SAMPLES = ROOT.parent / "shared" / "samples"


def section() -> Sequence[Table]:
    """Count anew what docs/reference/gate-tools.md says. That none of it is a pass, tests/gate proves."""
    rows = tuple(counted(SAMPLES))
    columns = ("tool", "whole outputs in the tree", "of other projects", "spoilt outputs judged", "mishaps judged")
    all_of = map(sum, zip(*(figures for _, *figures in rows), strict=True))
    notes = () if SAMPLES.is_dir() else ("The recordings of other projects are not beside this checkout.",)
    return [Table("What the judges of the gate were tried on", columns, (*rows, ("all", *all_of)), notes)]
