"""What the guides show of a soak is accepted as it stands, in a profile of the worked example."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from reconciler.model.soak import loads_of
from reconciler.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```yaml\n# in an AcceptanceProfile\nspec:\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(("guide", "names"), [("soak", ["cpu"]), ("retest", ["links", "traffic"])])
def test_the_loads_that_a_guide_shows_are_accepted(tmp_path: Path, guide: str, names: list[str]) -> None:
    text = (ROOT / f"docs/how-to/{guide}.md").read_text()
    (shown,) = [block for block in BLOCK.findall(text) if "  soak:" in block]
    spec = tmp_path / "fleet-spec"
    shutil.copytree(ROOT / "fleet-spec", spec)
    profile = spec / "acceptance.yaml"
    profile.write_text(profile.read_text() + shown.replace("[link, soak]", "[nccl, soak]"))
    tests = next(iter(load_spec(spec, directory="fleet-spec").nodes.values())).tests
    assert tests is not None
    (soak,) = [test for test in tests.tests if test.tool == "soak"]
    assert [load.name for load in loads_of(soak)] == names
