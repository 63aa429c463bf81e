"""Single values of a spec, of an inventory and of the command line: bounded, finite, and without control characters."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.cli.main import run
from reconciler.model.units import MAX_DURATION_S, parse_duration, parse_nodes, parse_size
from reconciler.spec import check_spec
from reconciler.strict_yaml.characters import MAX_TEXT, check_line, check_text
from tests.spec.example import changed, messages, told

# Newline, carriage return, escape, NUL, DEL, a C1 control, right-to-left override, isolate, zero width, line separator,
# byte order mark, a lone surrogate.
HOSTILE = ["\n", "\r", "\x1b", "\0", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\u2028", "\ufeff", "\ud800"]


def escaped(char: str) -> str:
    return json.dumps(char)[1:-1]


def pool(entry: str, more: str = "") -> list[str]:
    text = f"apiVersion: reconciler.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: more}}\nspec:\n{more}  nodes:\n  - "
    return told({**changed(), "more.yaml": f"{text}{{name: m1, host: m1, {entry}}}\n".encode()})


@pytest.mark.parametrize("char", HOSTILE)
@pytest.mark.parametrize(
    "entry",
    [
        'serial: "S{}1"',
        'sysctls: {{vm.swappiness: "1{}kernel.core_pattern = |/bin/sh"}}',
        'sysctls: {{"vm.swap{}piness": "1"}}',
        'services: {{"a{}b": running}}',
        'labels: {{a: "x{}y"}}',
        'labels: {{"a{}b": x}}',
        'bios: {{attributes: {{A: "x{}y"}}}}',
        'bios: {{attributes: {{"A{}B": x}}}}',
        'domains: {{rack: "r{}1"}}',
        'image: {{name: ubuntu, version: "1{}2"}}',
        'rootDisk: {{serial: "D{}1"}}',
        'hold: {{reason: "a{}b", owner: o}}',
        'hostname: "h{}1"',
    ],
)
def test_no_value_of_a_node_has_a_control_character(entry: str, char: str) -> None:
    found = pool(entry.format(escaped(char)))
    assert any(line.startswith("more.yaml:6:") for line in found), found
    assert char not in "".join(found)


def errors(entry: str) -> list[str]:
    return [line for line in pool(entry) if not line.startswith("warning: ")]


def test_a_sysctl_value_may_have_tabs_and_no_more_than_a_page() -> None:
    assert errors('sysctls: {net.ipv4.tcp_rmem: "4096\\t87380\\t6291456"}') == []
    assert errors("sysctls: {kernel.core_pattern: '|/usr/lib/systemd/systemd-coredump %P %u'}") == []
    for value in ("x" * 4096, "é", "a\\nb"):
        (found,) = pool(f'sysctls: {{kernel.domainname: "{value}"}}')
        assert found.startswith("more.yaml:6:55 spec.nodes[0].sysctls.kernel.domainname: ")
        assert len(found) < 5000


def test_a_service_is_no_option_of_systemctl() -> None:
    (found,) = pool("services: {--root=x: running}")
    assert "is not a name of a systemd unit" in found
    (found,) = pool("services: {-H.service: running}")
    assert "is not a name of a systemd unit" in found


@pytest.mark.parametrize("key", ["a..b/x", "-a.b/x", f"{'a' * 254}/x", "A.b/x", "a.b/", "a/b/c"])
def test_label_keys_follow_kubernetes(key: str) -> None:
    (found,) = pool(f"labels: {{{key}: x}}")
    assert "is not a Kubernetes label key" in found


def test_an_argument_of_a_command_may_have_lines_and_nothing_else() -> None:
    """The script of `sh -c`."""
    old = "provider: kubernetes"
    script = 'provider: command, command: [sh, -c, "set -e\\n\\tdrain{}"]'
    told_well = messages(("persona.yaml", old, script.format("")))
    assert not any("U+" in line for line in told_well)
    told_ill = messages(("persona.yaml", old, script.format("\\e[2J")))
    assert any("has the character U+001B" in line for line in told_ill)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("9223372036854775808", "is too large a number (put it in quotes if it is text)"),
        ("-9223372036854775809", "is too large a number (put it in quotes if it is text)"),
        ("0xffffffffffffffff", "is too large a number (put it in quotes if it is text)"),
        ("1e19", "is too large a number"),
        ("1e308", "is too large a number"),
        ("1e309", "is not a finite number"),
        ("-.inf", "is not a finite number"),
        (".nan", "is not a finite number"),
    ],
)
def test_numbers_are_bounded(value: str, problem: str) -> None:
    (found,) = pool(f"bios: {{attributes: {{A: {value}}}}}")
    assert found == f"more.yaml:6:49: {value} {problem}"


def test_texts_are_bounded() -> None:
    (found,) = pool(f"serial: {'S' * (MAX_TEXT + 1)}")
    assert found.startswith("more.yaml:6:34: 'SSS")
    assert found.endswith(f"has more than {MAX_TEXT} characters")
    assert len(found) < 200


# --- inventories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", [char for char in HOSTILE if char not in "\n\ufeff\ud800"] + ["\t", "\ufeff"])
@pytest.mark.parametrize("column", ["name", "host", "serial", "hostname", "rootDisk", "domains.rack"])
def test_cells_have_no_control_characters(column: str, char: str) -> None:
    cells = {"name": "n1", "host": "n1", column: f"a{char}b"}
    text = f"{','.join(cells)}\n{','.join(cells.values())}\n"
    found = told({**changed(), "nodes.csv": text.encode()})
    at = 1 + sum(len(cells[name]) + 1 for name in list(cells)[: list(cells).index(column)])
    assert any(line.startswith(f"nodes.csv:2:{at}: 'a") for line in found), found
    assert char not in "".join(found)


@pytest.mark.parametrize("serial", ["x" * 129, "é", '" x"'])
def test_serial_numbers_are_short_and_plain(serial: str) -> None:
    (found,) = told({**changed(), "nodes.csv": f"name,host,serial\nn1,n1,{serial}\n".encode()})
    assert found.startswith("nodes.csv:2:7: ")
    assert "is not a serial number" in found


# --- durations, sizes, shares --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["3651d", "87601h", "1000000000000d", "315360001s"])
def test_a_duration_is_no_longer_than_ten_years(text: str) -> None:
    with pytest.raises(ValueError, match="is longer than 3650d"):
        parse_duration(text)
    assert datetime.now(UTC) + 3 * timedelta(seconds=MAX_DURATION_S)  # a date, however they are added up


@pytest.mark.parametrize("text", ["9" * 400 + "d", "9" * 5000 + "s", "٣s", "1e9s", "nans", "infs"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["9" * 400 + "GB", "9" * 5000 + "B", "٣GB", "99999999TiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size|no machine has"):
        parse_size(text)


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 400 + "%", "1000001", "٣%"])
def test_what_is_no_number_of_nodes(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number of nodes|more nodes than"):
        parse_nodes(text, 100)


@given(st.text(st.characters(codec="ascii") | st.sampled_from("0123456789dhms.%GB"), max_size=60))
def test_units_say_no_or_are_bounded(text: str) -> None:
    for parse, most in ((parse_duration, MAX_DURATION_S), (parse_size, 2**60), (lambda t: parse_nodes(t, 9), 10**6)):
        try:
            assert 0 <= parse(text) <= most
        except ValueError:
            continue


@given(st.text(max_size=30))
def test_a_line_is_what_prints_in_one(text: str) -> None:
    if text.isprintable():
        check_line(text)
    with suppress(ValueError):
        check_line(text)
        check_text(text)
        assert len(text.splitlines()) <= 1


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_a_time_is_valid_in_every_time_zone(until: str) -> None:
    (found,) = pool(f"hold: {{reason: r, owner: o, until: '{until}'}}")
    assert "is not a time with an offset" in found


@pytest.mark.parametrize("listen", ["0.0.0.0:99999", "0.0.0.0:65536", "[::]:123456"])
def test_a_port_is_one(listen: str) -> None:
    (found,) = messages(("fleet.yaml", "0.0.0.0:8089", listen))
    assert "is not an address like 0.0.0.0:8089" in found


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["apply", "SPEC", "--wait", "1000000000000d"],
        ["apply", "SPEC", "--wait", "9" * 5000 + "d"],
        ["apply", "SPEC", "--wait", "1e308"],
        ["apply", "SPEC", "--wait", "nan"],
        ["history", "n1", "--since", "0001-01-01T00:00+12:00"],
        ["history", "n1", "--since", "999999999999d"],
        ["history", "n1", "--last", "9" * 30],
        ["audit", "log", "--last", "9" * 30],
        ["lease", "release", "--id", "9" * 30],
        ["demo", "SPEC", "--time-scale", "nan"],
        ["demo", "SPEC", "--time-scale", "inf"],
        ["lab", "up", "--dir", "DIR", "--nodes", "3", "--time-scale", "nan"],
        ["lab", "up", "--dir", "DIR", "--nodes", "9" * 20],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_numbers_of_the_command_line_are_bounded(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in changed().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    places = {"SPEC": str(tmp_path), "DIR": str(tmp_path / "lab")}
    assert run([places.get(word, word) for word in arguments]) == 64
    assert "Traceback" not in capsys.readouterr().err


def test_the_example_is_as_valid_as_before() -> None:
    fleet, problems = check_spec(changed(), directory="")
    assert fleet is not None, problems
