"""`reconciler conformance redfish` on a lab's BMCs, as a person or a script calls it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.shell import Done, LabDirectory, reconciler, running_lab
from tests.docs.pages import first_words

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("conformance"), "--scenario", "clean", nodes=1) as found:
        yield found


def conformance(lab: LabDirectory, *words: str) -> Done:
    address = next(iter(lab.endpoints_of("bmc")))
    return reconciler("conformance", "redfish", address, "--endpoints", lab.endpoints, *words)


def test_a_bmc_of_the_lab_passes_and_nothing_changes(lab: LabDirectory) -> None:
    before = lab.counters()
    done = conformance(lab, "--output", "json")
    assert (done.code, done.json["counts"]["fail"]) == (0, 0), done.out
    results = {check["name"]: check["result"] for check in done.json["checks"]}
    assert results["certificate"] == "pass"
    assert results["write-power"] == "not tried"
    assert all(check["without"] and check["clause"] for check in done.json["checks"])
    assert lab.counters() == before


def test_the_command_of_the_guide_asks_a_bmc_that_no_spec_names(lab: LabDirectory) -> None:
    """With a login and a CA from files. The lab's BMC answers as any does that is new in the rack."""
    here = {
        "https://10.20.0.11": next(iter(lab.endpoints_of("bmc"))),
        "bmc.json": str(lab.path / "secrets/bmc.json"),
        "bmc-ca.pem": str(lab.path / "pki/bmc-ca.pem"),
    }
    done = reconciler(*first_words("how-to/conformance", here)[1:])
    assert (done.code, " pass" in done.out) == (0, True), done.out + done.err


def test_writes_need_the_sentence_and_are_put_back(lab: LabDirectory) -> None:
    serial = conformance(lab, "--output", "json").json["about"]["serial"]
    before = lab.counters()
    words = ("--allow-writes", "--check", "write-locator-led", "--check", "write-boot-override")
    refused = conformance(lab, *words)
    assert refused.code == 64
    assert f"--confirm 'write to {serial}'" in refused.err
    assert conformance(lab, *words, "--confirm", f"power {serial}").code == 64
    assert lab.counters() == before
    done = conformance(lab, *words, "--confirm", f"write to {serial}", "--output", "json")
    assert (done.code, done.json["counts"]["pass"]) == (0, 2), done.out
    assert [check["name"] for check in done.json["checks"]] == ["write-locator-led", "write-boot-override"]


def test_power_has_a_sentence_of_its_own(lab: LabDirectory) -> None:
    serial = conformance(lab, "--output", "json").json["about"]["serial"]
    done = conformance(lab, "--allow-writes", "--check", "write-power", "--confirm", f"power {serial}")
    assert done.code == 0, done.out
    assert "1 pass" in done.out


def test_what_is_mistyped_is_said(lab: LabDirectory) -> None:
    done = conformance(lab, "--check", "seriel")
    assert (done.code, "did you mean" in done.err) == (64, True), done.err
    assert conformance(lab, "--bios", "A=1").code == 64


def test_a_bmc_that_is_not_there(lab: LabDirectory) -> None:
    credentials = lab.path / "credentials.json"
    credentials.write_text('{"username": "a", "password": "b"}')
    words = ("conformance", "redfish", "https://127.0.0.1:1", "--insecure", "--timeout", "2")
    done = reconciler(*words, "--credentials", credentials)
    assert done.code == 4, done.out
    assert "no connection" in done.out
    assert "password" not in done.out
