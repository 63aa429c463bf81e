"""Ranges of names, addresses in one form, and units as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.addresses import normalise_bmc, normalise_host
from reconciler.model.units import format_duration, format_size, parse_duration, parse_nodes, parse_size
from reconciler.spec.ranges import contract, expand, is_range

NAMES = st.text("abcxyz-.", max_size=5)


@given(before=NAMES, after=NAMES, low=st.integers(0, 10**6), count=st.integers(1, 300), width=st.integers(0, 8))
def test_a_range_stands_for_its_numbers_in_order(before: str, after: str, low: int, count: int, width: int) -> None:
    first, last = f"{low:0{width}d}", f"{low + count - 1:0{width}d}"
    if first.startswith("0") and len(first) != len(last):
        last = first = "7"
        low, count = 7, 1
    found = expand(f"{before}[{first}-{last}]{after}")
    assert len(found) == count == len(set(found))
    assert [
        int(name.removeprefix(before).removesuffix(after) if after else name.removeprefix(before)) for name in found
    ] == [*range(low, low + count)]
    if first.startswith("0") and len(first) > 1:
        assert {len(name) for name in found} == {len(before) + len(first) + len(after)}


@given(st.text(st.characters(exclude_characters="[]")))
def test_text_without_brackets_stands_for_itself(text: str) -> None:
    assert expand(text) == [text]
    assert not is_range(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu-a[001-003]", ["gpu-a001", "gpu-a002", "gpu-a003"]),
        ("gpu-a[8-11]", ["gpu-a8", "gpu-a9", "gpu-a10", "gpu-a11"]),
        ("gpu-a[01,07-08]", ["gpu-a01", "gpu-a07", "gpu-a08"]),
        ("https://10.20.0.[11-12]:8443", ["https://10.20.0.11:8443", "https://10.20.0.12:8443"]),
        ("https://[fd00::[11-12]]", ["https://[fd00::11]", "https://[fd00::12]"]),
        ("https://[fd00::11]", ["https://[fd00::11]"]),
        ("x[0-0]", ["x0"]),
    ],
)
def test_ranges(text: str, expected: list[str]) -> None:
    assert expand(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpu-a[008-001]", "'gpu-a[008-001]' counts from 008 down to 001"),
        ("gpu-a[08-100]", "'gpu-a[08-100]' counts from 08 to 100, which differ in width"),
        ("gpu-a[0-200000]", "'gpu-a[0-200000]' names more than 200000 nodes"),
        ("gpu-a[1-99999,100000-200001]", "'gpu-a[1-99999,100000-200001]' names more than 200000 nodes"),
        ("gpu-a[1-9999999999999999999999]", "'gpu-a[1-9999999999999999999999]' names more than 200000 nodes"),
        ("x" * 301 + "[1-9]", f"{'x' * 60!r}... has more than 300 characters around its range"),
        ("gpu-a[1,1]", "'gpu-a[1,1]' names a number twice"),
        ("r[1-2]n[1-2]", "'r[1-2]n[1-2]' has two ranges; one is allowed"),
    ],
)
def test_bad_ranges(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        expand(text)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://10.20.0.11", "https://10.20.0.11"),
        ("https://10.20.0.11:443/", "https://10.20.0.11"),
        ("HTTPS://BMC-1.Example.com:8443", "https://bmc-1.example.com:8443"),
        ("https://[FD00:0::11]", "https://[fd00::11]"),
        ("https://[fd00::11]:8443", "https://[fd00::11]:8443"),
    ],
)
def test_equal_bmcs_are_equal_texts(text: str, expected: str) -> None:
    assert normalise_bmc(text) == expected == normalise_bmc(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.20.1.11", "10.20.1.11:22"),
        ("10.20.1.11:2222", "10.20.1.11:2222"),
        ("GPU-A001.example.com", "gpu-a001.example.com:22"),
        ("[fd00::11]", "[fd00::11]:22"),
    ],
)
def test_equal_hosts_are_equal_texts(text: str, expected: str) -> None:
    assert normalise_host(text) == expected == normalise_host(expected)


@pytest.mark.parametrize(
    "text",
    ["", "10.20.1", "10.20.1.256", "1.2.3.4.5", "10.20.1.11:0", "10.20.1.11:65536", "a b", "-a", "fd00::1", "[zz::]"],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an|no valid port"):
        normalise_host(text)


@given(st.integers(0, 6), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(days: int, hours: int, minutes: int, seconds: int, millis: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s{millis}ms"
    assert parse_duration(text) == pytest.approx(days * 86400 + hours * 3600 + minutes * 60 + seconds + millis / 1000)


@given(
    st.integers(0, 59)
    | st.integers(0, 59).map(lambda minutes: minutes * 60)
    | st.integers(0, 47).map(lambda h: h * 3600)
)
def test_a_duration_reads_back_as_it_was_shown(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "10", "5 minutes", "1h 30m", "-5s", "10m5"])
def test_bad_durations(text: str) -> None:
    """Conventions Y11."""
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(1, 10**6), st.sampled_from([("KB", 10**3), ("GiB", 2**30), ("TB", 10**12)]))
def test_sizes(number: int, unit: tuple[str, int]) -> None:
    assert parse_size(f"{number}{unit[0]}") == number * unit[1]


@given(st.integers(1, 100), st.integers(1, 10_000))
def test_a_share_of_nodes_is_rounded_up(percent: int, total: int) -> None:
    found = parse_nodes(f"{percent}%", total)
    assert 1 <= found <= total
    assert found - 1 < total * percent / 100 <= found


@given(st.integers(1, 10**15))
def test_a_size_reads_back_as_it_is_written(count: int) -> None:
    assert parse_size(format_size(count)) == count


@given(
    st.data(), st.integers(0, 1200), st.integers(1, 40), st.sampled_from([0, 1, 3]), st.sampled_from(["", "-x", ".7"])
)
def test_what_is_contracted_expands_again(data: st.DataObject, first: int, size: int, width: int, after: str) -> None:
    """Whichever of some names are left."""
    names = [f"10.n{number:0{width}d}{after}" for number in range(first, first + size)]
    some = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True).map(sorted))
    assert expand(contract(some)) == some


def test_names_that_differ_in_more_than_a_number_are_not_contracted() -> None:
    with pytest.raises(ValueError, match="differ in more than a number"):
        contract(["gpu-a1", "gpu-b2"])
