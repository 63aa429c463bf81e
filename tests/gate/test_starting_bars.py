"""Published figures: sourced, and bars of nothing but what was published."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from reconciler.cli.main import run
from reconciler.gate.starting_bars import Figure, StartingBars, packaged
from reconciler.model.errors import UsageError
from reconciler.render.starting_bars import as_phases
from reconciler.spec.kinds.acceptance_profile import AcceptanceProfileSpec
from reconciler.strict_yaml.read import model_of
from tests.conftest import ROOT
from tests.docs.pages import first_words, page, steps

BAR: dict[str, Any] = {
    "model": "H100 SXM",
    "tool": "nccl-tests",
    "metric": "busbw_peak",
    "value": 460.0,
    "unit": "GB/s",
    "scope": "one node of 8 GPUs",
    "size": "16G",
    "args": {"collective": "all_reduce", "minBytes": "16G", "maxBytes": "16G"},
    "source": "somebody",
}
COPY = {
    "tool": "nvbandwidth",
    "metric": "host_to_device_memcpy_ce.min",
    "size": "that of the tool",
    "args": {"testcases": "host_to_device_memcpy_ce"},
}


def figure(**changes: Any) -> Figure:
    return Figure.model_validate_json(json.dumps(BAR | changes))


def test_a_bar_is_what_its_test_measures() -> None:
    assert figure().args == BAR["args"]
    assert figure(**COPY).metric == COPY["metric"]
    assert figure(args=None, because="of two nodes").args is None


@pytest.mark.parametrize(
    "changes",
    [
        {"size": "8G"},
        {"size": "1G to 16G"},
        {"args": BAR["args"] | {"minBytes": "8G"}},
        {"args": {"collective": "all_reduce"}},  # of the sizes that hold unless said
        {"args": {"minBytes": "16G", "maxBytes": "16G"}},
        {"scope": "two nodes of 8 GPUs"},
        {"scope": "one node"},
        {"args": BAR["args"] | {"partners": "2", "interface": "ib0"}},
        {"args": BAR["args"] | {"group": "8", "interface": "ib0"}},
        {"tool": "nvbandwidth"},
        {"tool": "mamf-finder"},
        {"metric": "busbw"},
        {"unit": "Gb/s"},
        {"value": 0},
        {"args": None},  # no bar, and nothing says why
        {"because": "of two nodes"},  # a bar, and something says why not
        COPY | {"size": "64M"},
        COPY | {"metric": "device_to_host_memcpy_ce.min"},
        COPY | {"metric": "host_to_device_memcpy_ce.average"},
        {"tool": "perftest", "metric": "gbps", "unit": "Gb/s", "size": "64K", "args": {"rails": "mlx5_0"}},
    ],
)
def test_a_figure_is_no_bar_for_another_scope_or_size(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        figure(**changes)


def test_the_packaged_table_has_a_source_for_each_figure_and_a_bar_for_most_models() -> None:
    bars = packaged()
    assert all(one.source for one in bars.figures)
    assert {one.model for one in bars.figures} == set(bars.models)
    with_bars = {one.model for one in bars.figures if one.args is not None}
    assert with_bars == {"A100 SXM", "H100 SXM", "H200", "GB200", "MI300X"}


def test_a_table_with_two_bars_for_one_thing_or_of_no_model_is_refused() -> None:
    with pytest.raises(ValidationError, match="two bars for H100 SXM nccl-tests"):
        StartingBars.model_validate_json(json.dumps({"models": {"H100 SXM": []}, "figures": [BAR, BAR]}))
    with pytest.raises(ValidationError, match="no such model: H100 SXM"):
        StartingBars.model_validate_json(json.dumps({"models": {}, "figures": [BAR]}))


@pytest.mark.parametrize("model", sorted(packaged().models))
def test_what_is_printed_is_a_phase_of_a_profile_with_the_figures_as_published(model: str) -> None:
    figures = packaged().of(model)
    text = "phases:\n" + "\n".join(as_phases(model, figures)) + "\n"
    bars = [one for one in figures if one.args is not None]
    if not bars:
        assert all(line.startswith("#") for line in text.splitlines()[1:])
        return
    spec = model_of(AcceptanceProfileSpec, text, "printed")
    tests = {test.tool: test for phase in spec.phases for test in phase.tests}
    found = [(str(test.tool), bar.metric, bar.min) for test in tests.values() for bar in test.thresholds]
    assert sorted(found) == sorted((one.tool, one.metric, one.value) for one in bars)
    for one in bars:
        args = {name: str(value).split(",") for name, value in tests[one.tool].args.items()}  # type: ignore[index]
        assert all(value in args[name] for name, value in (one.args or {}).items())
        assert one.tool == "nvbandwidth" or args == {name: [value] for name, value in (one.args or {}).items()}


@pytest.mark.parametrize("name", ["H100 SXM", "h100-sxm", "H100SXM", "NVIDIA H100 80GB HBM3"])
def test_a_model_is_known_by_its_name_and_by_what_its_gpus_say(name: str) -> None:
    assert packaged().model_named(name) == "H100 SXM"


@pytest.mark.parametrize("name", ["H100", "NVIDIA H100 PCIe", "h300", ""])
def test_another_model_is_refused_with_the_names_of_those_that_are_known(name: str) -> None:
    with pytest.raises(UsageError, match=r"the models are A100 SXM, H100 SXM, H200, .*MI355X"):
        packaged().model_named(name)


def test_the_command_prints_a_valid_profile_and_ends_with_64_for_an_unknown_model(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gate", "bars", "H100-SXM"]) == 0
    phases = capsys.readouterr().out
    for path in (ROOT / "fleet-spec").rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(ROOT / "fleet-spec")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    profile = tmp_path / "acceptance.yaml"
    head = profile.read_text().partition("  phases:\n")[0]
    profile.write_text(head + "  phases:\n" + "".join(f"    {line}\n" for line in phases.splitlines()))
    assert run(["validate", str(tmp_path)]) == 0, capsys.readouterr().out
    assert run(["gate", "bars", "H300"]) == 64
    assert "the models are A100 SXM" in capsys.readouterr().err


def test_the_command_prints_what_its_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(first_words("reference/starting-bars")[1:]) == 0
    (step,) = steps(page("reference/starting-bars"))
    *shown, more = step.shown
    assert (capsys.readouterr().out.splitlines()[: len(shown)], more) == (shown, "...")


def test_the_command_lists_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gate", "bars", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == len(packaged().figures)
    assert {row["bar"] == "yes" for row in listed} == {True, False}
    assert run(["gate", "bars", "b200", "-o", "json"]) == 0
    assert {row["model"] for row in json.loads(capsys.readouterr().out)} == {"B200"}
