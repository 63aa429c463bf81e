"""The facts program and its answer: both ends agree, real shells run it, and damage is always noticed."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.fact_framing import (
    MAX_BYTES,
    FactRequest,
    MalformedAnswer,
    build_answer,
    build_program,
    parse_answer,
    parse_program,
)
from reconciler.model.gate import CommandResult

NONCE = "c0ffee"
names = st.from_regex(r"[a-z0-9_]{1,20}", fullmatch=True)
requests = st.builds(
    FactRequest,
    names,
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
    | st.sampled_from(["# answer\n", "\n# answer\nwait", "'", "}\n", "fact a 1 b", "\\", '"$x"', "# facts\n"]),
    st.integers(1, 3600).map(float),
)
answers = st.dictionaries(
    names,
    st.builds(
        CommandResult,
        st.integers(0, 255).filter(lambda status: status not in (124, 137, 143)),
        st.text(max_size=80) | st.just(f"END {NONCE}\nRECONCILER-FACTS 2 {NONCE}\n"),
        st.text(max_size=80),
    )
    | st.builds(lambda out, err: CommandResult(-1, out, err, timed_out=True), st.text(max_size=9), st.text(max_size=9)),
    max_size=6,
)


# --- both ends ---------------------------------------------------------------------------------------------------


@given(asked=st.lists(requests, max_size=6))
def test_a_program_is_read_as_it_was_written(asked: list[FactRequest]) -> None:
    assert parse_program(build_program(asked, NONCE)) == (NONCE, tuple(asked))


@given(found=answers)
def test_an_answer_is_read_as_it_was_written(found: Mapping[str, CommandResult]) -> None:
    assert parse_answer(build_answer(NONCE, found), NONCE) == found


@given(found=answers, banner=st.binary(max_size=80), rest=st.binary(max_size=80))
def test_banners_do_not_matter(found: Mapping[str, CommandResult], banner: bytes, rest: bytes) -> None:
    assert parse_answer(banner + build_answer(NONCE, found) + rest, NONCE) == found


@given(found=answers, data=st.data())
def test_every_truncation_is_noticed(found: Mapping[str, CommandResult], data: st.DataObject) -> None:
    whole = build_answer(NONCE, found)
    with pytest.raises(MalformedAnswer):
        parse_answer(whole[: data.draw(st.integers(0, len(whole) - 1))], NONCE)


@given(found=answers)
def test_an_answer_to_another_program_is_none(found: Mapping[str, CommandResult]) -> None:
    with pytest.raises(MalformedAnswer):
        parse_answer(build_answer("0ther", found), NONCE)


@given(damage=st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_malformed(damage: bytes) -> None:
    for data in (damage, f"RECONCILER-FACTS 2 {NONCE}\n".encode() + damage):
        try:
            parse_answer(data, NONCE)
        except MalformedAnswer:
            continue


@pytest.mark.parametrize(
    "header", ["fact a 0 -1 0", "fact a 0 999999999999 0", "fact a b 0 0", "fact ² 0 ² 0", "fact a 0"]
)
def test_headers_that_lie(header: str) -> None:
    with pytest.raises(MalformedAnswer):
        parse_answer(f"RECONCILER-FACTS 2 {NONCE}\n{header}\n\nEND {NONCE}\n".encode(), NONCE)


def test_a_fact_answered_twice_is_damage() -> None:
    one = f"RECONCILER-FACTS 2 {NONCE}\nfact a 0 1 0\nfact a 0 1 0\n\nxyEND {NONCE}\n".encode()
    with pytest.raises(MalformedAnswer, match="twice"):
        parse_answer(one, NONCE)


@pytest.mark.parametrize(
    "script",
    [
        "",
        "uname -r",
        "# reconciler-facts 2",
        "# reconciler-facts 1 abc\n",
        "# reconciler-facts 2 abc\nrm -rf /\n",
        "# reconciler-facts 2 abc\n\n# facts\necho a b c\n# answer\n",
        "# reconciler-facts 2 abc\n\n# facts\nfact 'a\n# answer\n",
    ],
)
def test_other_scripts_are_no_facts_program(script: str) -> None:
    with pytest.raises(ValueError):
        parse_program(script)


@pytest.mark.parametrize(
    "request_",
    [FactRequest("a b", "x", 1), FactRequest("a", "x\0", 1), FactRequest("a", "x", 0), FactRequest("", "x", 1)],
)
def test_what_no_shell_could_run_is_refused(request_: FactRequest) -> None:
    with pytest.raises(ValueError):
        build_program([request_], NONCE)


# --- real shells -------------------------------------------------------------------------------------------------

SHELLS = [["dash", "-s"], ["bash", "-s"], ["busybox", "sh", "-s"]]


@pytest.fixture(params=SHELLS, ids=" ".join)
def shell(request: pytest.FixtureRequest) -> list[str]:
    program, *options = request.param
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return [found, *options]


def run(shell: list[str], asked: list[FactRequest], env: dict[str, str] | None = None) -> dict[str, CommandResult]:
    program = build_program(asked, NONCE).encode()
    done = subprocess.run(shell, input=program, capture_output=True, timeout=30, env=env)
    assert done.returncode == 0, done.stderr
    return parse_answer(done.stdout, NONCE)


def leftovers() -> set[Path]:
    return {path for place in ("/dev/shm", "/run", "/tmp") for path in Path(place).glob("facts.*")}


@pytest.mark.tool
def test_a_shell_answers(shell: list[str]) -> None:
    before, started = leftovers(), time.monotonic()
    found = run(
        shell,
        [
            FactRequest("plain", "echo out; echo err >&2; exit 3", 5),
            FactRequest("quoted", "printf '%s' \"it's\n# answer\nEND\"", 5),
            FactRequest("missing", "no-such-tool -x", 5),
            FactRequest("stdin", "cat", 5),
            FactRequest("daemon", "(sleep 20 &) ; echo started", 5),
            FactRequest("binary", "printf 'a\\377\\0b'", 5),
            FactRequest("locale", 'echo "$LC_ALL"', 5),
            FactRequest("hung", "sleep 60", 1),
            FactRequest("stubborn", "trap '' TERM; while :; do sleep 0.1; done", 1),
        ],
    )
    assert time.monotonic() - started < 5, "one that hangs costs no more than its timeout"
    assert found["plain"] == CommandResult(3, "out\n", "err\n")
    assert found["quoted"] == CommandResult(0, "it's\n# answer\nEND")
    assert found["missing"].exit_status == 127
    assert "not found" in found["missing"].stderr
    assert found["stdin"] == CommandResult(0, "")
    assert found["daemon"].stdout == "started\n"
    assert found["binary"].stdout == "a�\0b"
    assert found["locale"].stdout == "C\n"
    assert found["hung"].timed_out
    assert found["stubborn"].timed_out
    new = leftovers() - before
    until = time.monotonic() + 10
    while any(path.exists() for path in new) and time.monotonic() < until:  # those of tests that run beside this one go
        time.sleep(0.1)
    assert [path for path in new if path.exists()] == []


@pytest.mark.tool
def test_a_flood_is_bounded(shell: list[str]) -> None:
    found = run(shell, [FactRequest("flood", "yes", 3), FactRequest("other", "echo ok", 3)])
    assert 0 < len(found["flood"].stdout) <= MAX_BYTES
    assert found["flood"].exit_status != 0
    assert found["other"].stdout == "ok\n"


def tools(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name) or pytest.fail(f"{name} is not installed"))
    return folder


NEEDED = ("mktemp", "mkdir", "cp", "rm", "wc", "sleep", "sh", "cat")


@pytest.mark.tool
def test_framing_starts_as_many_processes_for_ten_facts_as_for_one(shell: list[str], tmp_path: Path) -> None:
    if "busybox" in shell[0]:
        pytest.skip("this shell has all of them built in")
    started, folder = tmp_path / "started", tools(tmp_path / "real", *NEEDED, "timeout", "head")
    counted = tmp_path / "counted"
    counted.mkdir()
    for name in ("mkdir", "cp", "mv", "rm", "wc", "cat", "head"):
        (counted / name).write_text(f'#!{folder}/sh\necho {name} >>{started}\nexec {folder}/{name} "$@"\n')
        (counted / name).chmod(0o755)
    ran = []
    for count in (1, 10):
        started.write_text("")
        found = run(
            shell, [FactRequest(f"a{at}", "echo out", 5) for at in range(count)], {"PATH": f"{counted}:{folder}"}
        )
        assert [answer.stdout for answer in found.values()] == ["out\n"] * count
        ran.append(sorted(started.read_text().split()))
    assert ran[0] == ran[1]


@pytest.mark.tool
def test_a_host_without_timeout(shell: list[str], tmp_path: Path) -> None:
    """Nothing can be read, and each fact says so."""
    if "busybox" in shell[0]:
        pytest.skip("this shell has timeout built in")
    found = run(shell, [FactRequest("a", "echo a", 5)], env={"PATH": str(tools(tmp_path / "bin", *NEEDED))})
    assert found["a"].exit_status == 127
    assert "timeout" in found["a"].stderr


@pytest.mark.tool
def test_what_can_not_be_killed_is_left_behind(shell: list[str], tmp_path: Path) -> None:
    """A process in uninterruptible sleep: here a timeout that waits for its command for ever."""
    if "busybox" in shell[0]:
        pytest.skip("this shell has timeout built in")
    folder = tools(tmp_path / "bin", *NEEDED)
    (folder / "timeout").write_text('#!/bin/sh\nshift 3\ncase $* in *stuck*) exec sleep 15;; *) exec "$@";; esac\n')
    (folder / "timeout").chmod(0o755)
    started = time.monotonic()
    found = run(shell, [FactRequest("a", ": stuck", 1), FactRequest("b", "echo b", 1)], env={"PATH": str(folder)})
    assert time.monotonic() - started < 10
    assert found["a"] == CommandResult(-1, "", "", timed_out=True)
    assert found["b"].stdout == "b\n"


@pytest.mark.tool
def test_half_a_program_does_nothing(shell: list[str], tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program = build_program([FactRequest("a", f"touch {mark}", 1), FactRequest("b", "true", 1)], NONCE)
    half = program[: program.rindex("done") + 5]
    done = subprocess.run(shell, input=half.encode(), capture_output=True, timeout=10)
    assert done.stdout == b""
    assert not mark.exists()


@pytest.mark.tool
def test_a_full_place_for_temporary_files_is_passed_over(shell: list[str], tmp_path: Path) -> None:
    """A crashed job of NCCL leaves /dev/shm full: directories can be made there, and nothing can be written."""
    folder = tools(tmp_path / "bin", *NEEDED, "timeout", "head")
    (folder / "mktemp").unlink()
    (folder / "mktemp").write_text(
        f'#!{folder}/sh\ncase $2 in /dev/shm/*) d={tmp_path}/full; {folder}/mkdir -p "$d/room";; *) d={tmp_path}/a; '
        f'{folder}/mkdir "$d";; esac\necho "$d"\n'
    )
    (folder / "mktemp").chmod(0o755)
    assert run(shell, [FactRequest("a", "echo out", 5)], {"PATH": str(folder)})["a"].stdout == "out\n"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.tool
def test_no_room_for_copies_loses_no_answer(shell: list[str], tmp_path: Path) -> None:
    if "busybox" in shell[0]:
        pytest.skip("this shell has cp built in")
    folder = tools(tmp_path / "bin", *NEEDED, "timeout", "head")
    (folder / "cp").unlink()
    (folder / "cp").write_text(f'#!{folder}/sh\necho "no space left on device" >&2\nexit 1\n')
    (folder / "cp").chmod(0o755)
    asked = [
        FactRequest("a", "echo out", 5),
        FactRequest("b", "echo b >&2", 5),
        FactRequest("writes", "(i=0; while [ $i -lt 99999 ]; do echo more; i=$((i+1)); done) & echo begun", 5),
        FactRequest("flood", "head -c 4500000 /dev/zero", 5),
    ]
    found = run(shell, asked, {"PATH": str(folder)})
    assert found["writes"].stdout.startswith(("begun\n", "more\n"))
    assert len(found["flood"].stdout) <= MAX_BYTES
    assert found["a"] == CommandResult(0, "out\n")
    assert found["b"] == CommandResult(0, "", "b\n")


def test_no_place_for_temporary_files(tmp_path: Path) -> None:
    folder = tools(tmp_path / "bin", *NEEDED)
    (folder / "mktemp").unlink()
    (folder / "mktemp").write_text("#!/bin/sh\nexit 1\n")
    (folder / "mktemp").chmod(0o755)
    done = subprocess.run(
        [shutil.which("sh") or "sh", "-s"],
        input=build_program([FactRequest("a", "true", 1)], NONCE).encode(),
        capture_output=True,
        env={"PATH": str(folder), "TMPDIR": str(tmp_path)},
        timeout=10,
    )
    assert done.returncode == 71
    assert b"no directory" in done.stderr
    assert list(tmp_path.iterdir()) == [folder]
