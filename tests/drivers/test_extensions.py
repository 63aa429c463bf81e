"""The worked example of docs/examples, installed by pip: named it works, and unnamed it changes nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.app.extension_conformance import check_package
from reconciler.app.extensions import examine_extensions, extended_facts, other_installer
from reconciler.app.forge_job import connect_forge
from reconciler.app.ports import AllowedSigners, FleetRequest
from reconciler.app.service import OFF, Service, ServiceOptions, ServiceRequest, SpecSource, WebRequest
from reconciler.app.workspace import Workspace
from reconciler.drivers.extensions import (
    HostFact,
    InstallerServer,
    Notifier,
    extensions_of,
    installed,
)
from reconciler.drivers.extensions.fit import ExtensionRefused
from reconciler.drivers.extensions.load import _IMPORTED
from reconciler.drivers.extensions.notifiers import Chats
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.secrets_file import SecretsFile, SecretSource
from reconciler.drivers.ssh.facts.extended import Extended, with_extensions
from reconciler.health.signals import host_signals, unread_signals
from reconciler.model.access import InstallerPolicy, PinnedExtension
from reconciler.model.desired import Fleet
from reconciler.model.errors import UsageError
from reconciler.model.gate import CommandResult
from reconciler.model.notices import Channel, Message, NotDelivered, Severity
from reconciler.model.observed import HostFacts
from reconciler.model.spec_feed import Trouble
from reconciler.spec import check_spec
from tests.builders import facts, observed
from tests.conftest import ROOT

WEB = WebRequest(OFF, None, None, None, {}, {})
EXAMPLE = ROOT / "docs/examples/acme-fleet"
PIN = PinnedExtension("acme-fleet", "1.2.0")
NAMED = "  extensions:\n    - {package: acme-fleet, version: '1.2.0'}\n"
ROW = """  health:
    signals:
      raid_degraded:
        fact: host.raised
        scope: drive
        class: persistent
        first: drain
        next: person
        healedBy: [fact_clear, gate]
        because: the next drive that fails takes the system along
        source: https://acme.example/raid
"""
GOOD = "Personalities : [raid1]\nmd0 : active raid1 sda1[0] sdb1[1]\n      975296 blocks super 1.2 [2/2] [UU]\n"
BAD = GOOD.replace("[2/2] [UU]", "[2/1] [U_]")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built and installed by pip without the network."""
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "acme-fleet")
    target = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, timeout=120)
    return target


@pytest.fixture
def example(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(packages))
    _forget()
    yield packages
    _forget()


def _forget() -> None:
    _IMPORTED.clear()
    extensions_of.cache_clear()
    other_installer.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_fleet"]:
        del sys.modules[name]


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., Fleet]:
    """The worked example of a fleet, with these lines in its Fleet."""

    def load(*lines: str) -> Fleet:
        folder = Path(shutil.copytree(ROOT / "fleet-spec", tmp_path / "fleet-spec", dirs_exist_ok=True))
        text = (ROOT / "fleet-spec/fleet.yaml").read_text()
        (folder / "fleet.yaml").write_text(text.replace("  cluster: main\n", "  cluster: main\n" + "".join(lines)))
        fleet, problems = check_spec(folder, directory="fleet-spec")
        assert fleet is not None, problems
        return fleet

    return load


def answers(mdstat: str) -> dict[str, CommandResult]:
    return {"extension_raid_state": CommandResult(0, mdstat)}


def facts_of(mdstat: str, fleet: Fleet) -> HostFacts:
    return with_extensions(facts(), answers(mdstat), extended_facts(fleet.settings))


def test_what_is_not_named_is_not_even_imported(example: Path, spec: Callable[..., Fleet]) -> None:
    fleet = spec()
    settings = fleet.settings
    assert [one.package for one in installed()] == ["acme-fleet"]
    assert extended_facts(settings) == Extended()
    assert facts() == with_extensions(facts(), answers(BAD), extended_facts(settings))
    said = list(examine_extensions(fleet))
    assert [one[:2] for one in said] == [("extensions", True)]
    assert "installed and not named: not loaded" in said[0][2]
    assert not any(name.startswith("acme_fleet") for name in sys.modules)


def test_a_fact_is_read_and_its_signal_follows_the_row_of_the_fleet(example: Path, spec: Callable[..., Fleet]) -> None:
    fleet = spec(NAMED, ROW)
    profile = next(iter(fleet.nodes.values())).profile
    read = facts_of(BAD, fleet)
    assert read.extensions == {"raid_state": "md0 1/2"}
    found = [one for one in host_signals(profile, observed(host=read)) if one.name == "raid_degraded"]
    assert [signal.detail for signal in found] == ["array md0: 1 of 2 members are there"]
    assert found[0].effect.value == "repairs"
    well = host_signals(profile, observed(host=facts_of(GOOD, fleet)))
    assert not [one for one in well if one.name == "raid_degraded"]
    assert all(ok for _, ok, _, _ in examine_extensions(fleet))


def test_a_fact_that_was_not_read_heals_nothing(example: Path, spec: Callable[..., Fleet]) -> None:
    fleet = spec(NAMED, ROW)
    profile = next(iter(fleet.nodes.values())).profile
    assert "health.raid_degraded" not in unread_signals(profile, observed(host=facts_of(GOOD, fleet)))
    garbage = facts_of("garbage", fleet)
    assert "health.raid_degraded" in unread_signals(profile, observed(host=garbage))
    assert "this is no /proc/mdstat" in garbage.unknown["extensions.raid_state"]
    assert "health.raid_degraded" in unread_signals(profile, observed()), "no extension was asked"


def test_a_bug_of_an_extension_costs_itself_alone(example: Path, spec: Callable[..., Fleet]) -> None:
    found = extended_facts(spec(NAMED, ROW).settings)

    def crash(_: object) -> list[tuple[str, str]]:
        raise KeyError("boom")

    judges: tuple[tuple[Any, str], ...] = (
        (crash, "KeyError"),
        (lambda _: ["raid_degraded"], "ValueError"),
        (lambda _: [([], "evidence")], "does not list"),
        (lambda _: None, "TypeError"),
    )
    for judge, why in judges:
        broken = replace(found, signals=(replace(found.signals[0], judge=judge),))
        read = with_extensions(facts(), answers(BAD), broken)
        assert (read.extensions, read.raised) == ({"raid_state": "md0 1/2"}, {})
        assert why in read.unknown["raised.raid_degraded"]


def test_a_signal_without_a_row_is_refused(example: Path, spec: Callable[..., Fleet]) -> None:
    with pytest.raises(UsageError, match="'raid_degraded': give it a row in the Fleet's `health`"):
        extended_facts(spec(NAMED).settings)


@pytest.mark.parametrize(
    ("pin", "why"),
    [
        (PinnedExtension("acme-fleet", "1.3.0"), "is installed as 1.2.0, and 1.3.0 is named"),
        (PinnedExtension("acme-flet", "1.2.0"), "is not installed: pip install acme-flet==1.2.0"),
    ],
)
def test_another_version_or_none_is_refused(example: Path, pin: PinnedExtension, why: str) -> None:
    with pytest.raises(ExtensionRefused, match=why):
        extensions_of((pin,)).check()
    assert not any(name.startswith("acme_fleet") for name in sys.modules)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "api=1, command",
            "api=2, command",
            "written for API 2, and this reconciler has API 1: upgrade the reconciler",
        ),
        ("api=1, command", "api=0, command", "API 0, .* install a version of acme-fleet for API 1"),
        ("STATE = HostFact", "STATE = str  # HostFact", "is a type, not a HostFact"),
        ("import re\n", "import re, no_such_module\n", "can't be imported: ModuleNotFoundError"),
        ("api=1, command", "api='1', command", "says api='1', which is no number"),
        ("parse=_parse)", "parse=_parse, timeout_s=0)", "timeout_s=0 is no number of seconds from 0 to 600"),
        ("def _parse(answer", "def _parse(host: str, answer", "parse does not take 1 argument; ask its author"),
    ],
)
def test_what_does_not_fit_is_refused(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    # Without modules that were compiled: a source of the same size, written in the same second, would not be read.
    changed = shutil.copytree(example, tmp_path / "changed", ignore=shutil.ignore_patterns("__pycache__"))
    file = changed / "acme_fleet/raid.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    monkeypatch.syspath_prepend(str(changed))
    _forget()
    with pytest.raises(ExtensionRefused, match=f"extension acme-fleet 1.2.0: 'raid_state' in reconciler.facts.*{why}"):
        extensions_of((PIN,)).all(HostFact)


def installed_meanwhile(example: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedExtension:
    """Install 1.3.0 as pip does while a service runs, which keeps modules of 1.2.0."""
    newer = shutil.copytree(example, to)
    metadata = next(newer.glob("acme_fleet-*.dist-info")) / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.2.0", "Version: 1.3.0"))
    monkeypatch.syspath_prepend(str(newer))
    return PinnedExtension("acme-fleet", "1.3.0")


def test_a_version_installed_meanwhile_needs_another_process(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modules of the version before would be taken for its own."""
    extensions_of((PIN,)).check()
    newer = installed_meanwhile(example, tmp_path / "newer", monkeypatch)
    with pytest.raises(ExtensionRefused, match=r"acme-fleet 1\.3\.0: .* runs the code of 1.2.0 until it ends; restart"):
        extensions_of((newer,)).check()
    _forget()
    extensions_of((newer,)).check()


def test_a_running_service_keeps_its_spec_until_another_version_can_be_loaded(
    example: Path, spec: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the new spec ends the work on the present one, time after time."""
    spec(NAMED, ROW)
    request = ServiceRequest(AllowedSigners(None, None), ServiceOptions(60, 1, None, False), WEB, None)
    source = SpecSource(None, "", "", None, "", None)
    feed = Service(Workspace(FleetRequest(tmp_path / "fleet-spec")), source, request)._feed()
    first = asyncio.run(feed.pull())
    assert first.changed
    present = feed.fleet
    newer = installed_meanwhile(example, tmp_path / "newer", monkeypatch)
    file = tmp_path / "fleet-spec/fleet.yaml"
    file.write_text(file.read_text().replace("'1.2.0'", "'1.3.0'"))
    pulls = [asyncio.run(feed.pull()) for _ in range(4)]
    assert feed.fleet is present
    assert not any(pulled.changed for pulled in pulls)
    assert pulls[-1].trouble is Trouble.INVALID
    assert "restart the service" in pulls[-1].detail
    assert sum(pulled.news for pulled in pulls) == 1, "it is said once"
    _forget()
    assert asyncio.run(feed.pull()).changed, "as once it is put right from outside"
    assert feed.fleet is not None
    assert feed.fleet.settings.extensions == (newer,)


def test_the_example_keeps_the_contract_without_a_fleet_that_names_it(example: Path) -> None:
    reports = check_package("acme_fleet", here=False)
    assert len(reports) == 6
    assert {one.check.name: one.detail for report in reports for one in report.outcomes if one.result == "fail"} == {}
    assert all(report.outcomes[0].result == "pass" for report in reports)
    with pytest.raises(ExtensionRefused, match=r"is installed as 1\.2\.0, and 2\.0 is named"):
        check_package("acme-fleet==2.0", here=False)
    with pytest.raises(ExtensionRefused, match="extension acme is not installed"):
        check_package("acme", here=False)
    with pytest.raises(UsageError, match="pytest is installed and offers no extension"):
        check_package("pytest", here=False)


def test_each_is_loaded_once(example: Path) -> None:
    assert extensions_of((PIN,)) is extensions_of((PIN,))
    assert extensions_of((PIN,)).one(Notifier, "journal") is extensions_of((PIN,)).one(Notifier, "journal")
    with pytest.raises(ExtensionRefused, match="did you mean 'journal'"):
        extensions_of((PIN,)).one(Notifier, "jurnal")


def store(path: Path) -> SecretStore:
    secret = path / "pager.txt"
    secret.write_text(str(path / "messages.jsonl"))
    secret.chmod(0o600)
    return SecretStore(SecretsFile(secrets={"pager": SecretSource(file=str(secret))}), path / "secrets.yaml")


def test_a_channel_that_names_a_notifier_is_told_by_it(example: Path, tmp_path: Path) -> None:
    secrets = store(tmp_path)
    chats = Chats(lambda: secrets, lambda: extensions_of((PIN,)))
    channel = Channel("audit", "pager", via="journal")
    message = Message("k", "audit", "t", Severity.WARNING, False, "gpu-a001 is isolated", "ECC")
    assert "journal" in chats.check(channel)
    asyncio.run(chats.send(channel, message))
    assert json.loads((tmp_path / "messages.jsonl").read_text())["title"] == "gpu-a001 is isolated"
    unnamed = Chats(lambda: secrets, lambda: extensions_of(()))
    with pytest.raises(NotDelivered, match="no extension that is named offers 'journal'"):
        asyncio.run(unnamed.send(channel, message))


def test_an_installer_of_an_extension_stands_in_place_of_the_packaged_one(example: Path, tmp_path: Path) -> None:
    policy = InstallerPolicy("127.0.0.1:0", None, str(tmp_path / "boot.iso"), via="announced")
    found = other_installer((PIN,), policy, store(tmp_path))
    assert type(found).__name__ == "_Announced"
    with pytest.raises(ExtensionRefused):
        extensions_of(()).one(InstallerServer, "announced")


def test_a_forge_of_an_extension_is_a_setting(example: Path, tmp_path: Path) -> None:
    (tmp_path / "pulls.json").write_text('[{"number": 7, "head": "abc", "author": "alice"}]')
    env = {"RECONCILER_FORGE": "acme_fleet==1.2.0", "RECONCILER_FORGE_TOKEN": "x"}
    forge = connect_forge(str(tmp_path), env)
    remark = asyncio.run(forge.add_remark(7, "a plan"))
    asyncio.run(forge.edit_remark(remark, "a newer plan"))
    assert [one.text for one in asyncio.run(forge.remarks(7))] == ["a newer plan"]
    for setting, why in (("acme-fleet", "no PACKAGE==VERSION"), ("acme-fleet==2.0", "is installed as 1.2.0")):
        with pytest.raises(ExtensionRefused, match=why):
            connect_forge(str(tmp_path), {**env, "RECONCILER_FORGE": setting})
