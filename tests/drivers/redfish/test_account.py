"""A new password for the account that we log in with: interrupted at any point, nobody is locked out."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.node_login import NodeLogin
from reconciler.drivers.redfish import BmcRegistry, RedfishBmc
from reconciler.drivers.redfish.account import LONG, SHORT, Rules, new_password
from reconciler.drivers.secrets import SecretStore
from reconciler.lab.wire.redfish import RedfishServer
from reconciler.lab.wire.redfish_quirks import EtagStyle, Quirks, quirks_of_make
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered
from tests.drivers.redfish.bench import NOW, client
from tests.lab.redfish_bench import EPOCH, PASSWORD, USERNAME, Clock, Trust, make_machine, make_trust

pytestmark = pytest.mark.wire

NODE = "gpu-a001"
STORE = """\
#!/bin/sh
# One file for each node: "get" prints it, and "put" replaces it with what is on the standard input.
case $1 in
get) cat "$RECONCILER_NODE.json" ;;
put) cat > "$RECONCILER_NODE.new" && mv "$RECONCILER_NODE.new" "$RECONCILER_NODE.json" ;;
esac
"""


class Site:
    """A BMC of the lab, and a store of secrets that a program reads and another one writes. Processes come and go."""

    def __init__(self, folder: Path, trust: Trust, quirks: Quirks) -> None:
        self.folder, self.trust, self.clock = folder, trust, Clock()
        self.machine = make_machine(self.clock)
        self.front = RedfishServer(self.machine, username=USERNAME, password=PASSWORD, quirks=quirks, epoch=EPOCH)
        self.url = ""
        (folder / "store").write_text(STORE)
        (folder / "store").chmod(stat.S_IRWXU)
        (folder / f"{NODE}.json").write_text(json.dumps({"username": USERNAME, "password": PASSWORD}))
        sources = {"bmc": {"exec": ["./store", "get"], "write": ["./store", "put"], "allow": ["127.0.0.0/8"]}}
        (folder / "secrets.yaml").write_text(json.dumps({"secrets": sources}))
        (folder / "secrets.yaml").chmod(0o600)

    @property
    def kept(self) -> dict[str, str]:
        """What the store has."""
        found: dict[str, str] = json.loads((self.folder / f"{NODE}.json").read_text())
        return found

    def process(self, **changes: Any) -> RedfishBmc:
        """A new process, which remembers nothing."""
        login = NodeLogin(SecretStore.load(self.folder / "secrets.yaml"), "bmc", self.url, NODE)
        known = {"credentials": login.read, "replace": login.replace, "bmc_registry": BmcRegistry(lambda: NOW)}
        return client(self.url, ca_pem=self.trust.ca.read_text(), insecure=False, **{**known, **changes})

    def play(self, steps: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            port = await self.front.start(self.trust.server)
            self.url = f"https://127.0.0.1:{port}"
            try:
                await asyncio.wait_for(steps(), 60)
            finally:
                await self.front.stop()

        asyncio.run(run())


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def site(tmp_path: Path, trust: Trust) -> Callable[..., Site]:
    return lambda quirks=None, **values: Site(tmp_path, trust, quirks or Quirks(**values))


async def rotate(bmc: RedfishBmc) -> None:
    await bmc.stage_password()
    await bmc.change_password()
    assert await bmc.is_password_proved()
    await bmc.keep_password()


async def failure(work: Awaitable[object]) -> DriverError:
    with pytest.raises(DriverError) as caught:
        await work
    return caught.value


MAKES = {make: quirks_of_make(make) for make in ("Supermicro", "Dell Inc.", "HPE", "NVIDIA")}
ODD = {
    "refuses ETags": Quirks(etags=EtagStyle.REFUSED),
    "empty ETags": Quirks(etags=EtagStyle.EMPTY, expand=False, error_info_as_list=False),
    "long passwords only": Quirks(shortest_password=24, longest_password=40),
    "locks after three": Quirks(locks_after=3),
    "Basic alone": Quirks(max_sessions=0),
}


@pytest.mark.parametrize("make", [*MAKES, *ODD])
def test_a_new_password_is_proved_and_the_one_before_is_gone(site: Callable[..., Site], make: str) -> None:
    here = site({**MAKES, **ODD}[make])

    async def steps() -> None:
        bmc = here.process()
        await rotate(bmc)
        assert here.front.password == here.kept["password"] != PASSWORD
        assert set(here.kept) == {"username", "password"}
        assert isinstance(await bmc.hot(), Answered)
        await bmc.close()
        assert here.front.open_sessions == 0
        assert here.front.refused_logins == 0
        again = here.process()
        assert isinstance(await again.hot(), Answered), "another process finds it in the store"
        await again.close()

    here.play(steps)


@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("etags", [EtagStyle.STRONG, EtagStyle.MISSING])
def test_who_is_killed_between_any_two_steps_is_followed_by_one_that_ends_it(
    site: Callable[..., Site], etags: EtagStyle, after: int
) -> None:
    """After so many steps the process is gone; the next one logs in with one wrong try at most, and finishes."""
    here = site(etags=etags, locks_after=3)

    async def steps() -> None:
        first = here.process()
        staged = ""
        for at, step in enumerate(("stage_password", "change_password", "is_password_proved", "keep_password")):
            if at == after:
                break
            await getattr(first, step)()
            staged = here.kept["password"]
        # It ends here: its session stays open, and what it knew is gone.
        second = here.process()
        assert isinstance(await second.hot(), Answered)
        assert here.front.refused_logins == (after == 1), "the new one was tried first, and then the one before"
        if after < 4:
            await rotate(second)
        assert here.front.password == here.kept["password"] != PASSWORD
        assert set(here.kept) == {"username", "password"}
        assert staged in ("", here.kept["password"]), "what was staged is used, and not a third one"
        assert here.front.refused_logins <= 1
        await second.close()
        await first.close()

    here.play(steps)


def test_one_that_forgets_the_change_gets_the_old_one_back(site: Callable[..., Site]) -> None:
    here = site(locks_after=3)
    here.machine.inject("password_change", how="ignored")

    async def steps() -> None:
        bmc = here.process()
        await bmc.stage_password()
        await bmc.change_password()
        assert not await bmc.is_password_proved()
        await bmc.put_password_back()
        assert here.front.password == PASSWORD
        assert here.kept == {"username": USERNAME, "password": PASSWORD}
        assert isinstance(await bmc.hot(), Answered)
        await rotate(bmc)  # the fault is over
        assert here.front.password == here.kept["password"] != PASSWORD
        await bmc.close()

    here.play(steps)


def test_one_that_dies_in_its_midst_is_logged_in_to_by_the_new_one(site: Callable[..., Site]) -> None:
    here = site(locks_after=3)
    here.machine.inject("password_change", how="dies")

    async def steps() -> None:
        bmc = here.process()
        await bmc.stage_password()
        assert (await failure(bmc.change_password())).kind is Failure.AMBIGUOUS
        assert (await failure(bmc.is_password_proved())).kind is Failure.UNREACHABLE
        here.clock.seconds += 600
        here.machine.catch_up()
        await rotate(here.process())
        assert here.front.password == here.kept["password"] != PASSWORD
        assert here.front.refused_logins == 0

    here.play(steps)


def test_one_that_takes_neither_keeps_both_in_the_store(site: Callable[..., Site]) -> None:
    here = site(locks_after=3)

    async def steps() -> None:
        bmc = here.process()
        await bmc.stage_password()
        here.front._bmc.sessions.change_password("somebody else's")  # behind our back
        assert not await bmc.is_password_proved()
        here.front._bmc.sessions.forget()
        error = await failure(bmc.put_password_back())
        assert error.kind is Failure.AUTH
        assert set(here.kept) == {"username", "password", "previous"}
        assert here.kept["previous"] == PASSWORD
        assert not here.front._bmc.sessions.is_locked(here.machine.now), "we have not locked it"
        assert here.front.refused_logins == 2
        await failure(bmc.change_password())
        assert here.front.refused_logins == 2, "and no try is made again"

    here.play(steps)


def test_one_that_refuses_the_password_is_not_quoted(site: Callable[..., Site]) -> None:
    here = site()

    async def steps() -> None:
        bmc = here.process()
        await bmc.stage_password()
        object.__setattr__(here.front._bmc.quirks, "longest_password", 10)  # after the rules were read
        error = await failure(bmc.change_password())
        assert error.kind is Failure.REJECTED
        assert "PropertyValueFormatError" in error.detail
        assert here.kept["password"] not in error.detail
        object.__setattr__(here.front._bmc.quirks, "longest_password", 20)
        await bmc.put_password_back()
        assert here.kept == {"username": USERNAME, "password": PASSWORD}
        await bmc.close()

    here.play(steps)


@pytest.mark.parametrize(
    ("message", "kind"), [("InsufficientPrivilege", Failure.AUTH), ("OperationNotAllowed", Failure.UNSUPPORTED)]
)
def test_one_that_refuses_every_change_has_its_one_password_in_the_store(
    site: Callable[..., Site], message: str, kind: Failure
) -> None:
    here = site(password_refusal=message, locks_after=3)

    async def steps() -> None:
        bmc = here.process()
        await bmc.stage_password()
        assert (await failure(bmc.change_password())).kind is kind
        await bmc.put_password_back()
        assert here.kept == {"username": USERNAME, "password": PASSWORD}
        assert isinstance(await bmc.hot(), Answered)
        assert here.front.refused_logins == 1, "it was asked whether it has the new one"
        await bmc.close()

    here.play(steps)


def test_one_that_refuses_a_used_password_is_not_asked_to_take_the_one_before(site: Callable[..., Site]) -> None:
    """The first attempt ends before the proof, and the session of the password before stays open."""
    here = site(refuses_used_passwords=True, locks_after=3)

    async def steps() -> None:
        bmc = here.process()
        await bmc.stage_password()
        await bmc.change_password()
        taken = here.front.password
        await rotate(bmc)
        assert here.front.password == here.kept["password"] == taken != PASSWORD
        assert set(here.kept) == {"username", "password"}
        assert here.front.refused_logins == 0
        await bmc.close()

    here.play(steps)


@pytest.mark.parametrize(
    ("quirks", "says"),
    [
        ({"locks_after": 2}, "locks an account after 2"),
        ({"longest_password": 11, "shortest_password": 0}, "no password of more than 11"),
    ],
)
def test_a_bmc_that_no_password_is_safe_on_is_left_alone(
    site: Callable[..., Site], quirks: dict[str, int], says: str
) -> None:
    here = site(**quirks)

    async def steps() -> None:
        bmc = here.process()
        error = await failure(bmc.stage_password())
        assert error.kind is Failure.UNSUPPORTED
        assert says in error.detail
        assert here.kept == {"username": USERNAME, "password": PASSWORD}
        await bmc.close()

    here.play(steps)


@pytest.mark.parametrize(
    "store",
    [
        STORE.replace('put) cat > "$RECONCILER_NODE.new" &&', "put) false &&"),
        STORE.replace("put) cat >", "put) true; cat >/dev/null; false >"),
        STORE.replace(
            'put) cat > "$RECONCILER_NODE.new" && mv "$RECONCILER_NODE.new" "$RECONCILER_NODE.json"',
            "put) cat >/dev/null",
        ),
    ],
    ids=["fails", "fails late", "forgets"],
)
def test_a_store_that_does_not_keep_it_leaves_the_bmc_as_it_is(site: Callable[..., Site], store: str) -> None:
    here = site()

    async def steps() -> None:
        bmc = here.process()
        (here.folder / "store").write_text(store)
        error = await failure(bmc.stage_password())
        assert error.kind is Failure.REJECTED
        assert "secrets.bmc" in error.detail
        assert PASSWORD not in error.detail
        assert here.front.password == PASSWORD
        assert isinstance(await bmc.hot(), Answered)
        await bmc.close()

    here.play(steps)


def test_a_secret_that_somebody_else_has_replaced_is_not_overwritten(site: Callable[..., Site]) -> None:
    """It was read within the minute; since then another process has staged a new password, and the BMC has it."""
    here = site()

    async def steps() -> None:
        bmc, other = here.process(), here.process()
        await bmc.hot()
        await other.stage_password()
        await other.change_password()
        staged = here.kept
        error = await failure(bmc.stage_password())
        assert error.kind is Failure.CONFLICT
        assert "somebody else has replaced" in error.detail
        assert here.kept == staged
        await rotate(bmc)
        assert here.front.password == here.kept["password"] == staged["password"]
        await bmc.close()
        await other.close()

    here.play(steps)


def test_a_secret_that_can_not_be_read_is_not_overwritten(site: Callable[..., Site]) -> None:
    here = site()

    async def steps() -> None:
        bmc = here.process()
        await bmc.hot()
        (here.folder / "store").write_text(STORE.replace("get) cat", "get) false"))
        assert (await failure(bmc.stage_password())).kind is Failure.REJECTED
        assert here.kept == {"username": USERNAME, "password": PASSWORD}
        await bmc.close()

    here.play(steps)


def test_the_password_is_in_no_argument_and_in_no_text_that_is_kept(site: Callable[..., Site]) -> None:
    here = site()
    (here.folder / "store").write_text(STORE.replace("case", 'echo "$0 $*" >> arguments; env >> arguments\ncase', 1))

    async def steps() -> None:
        store = SecretStore.load(here.folder / "secrets.yaml")
        login = NodeLogin(store, "bmc", here.url, NODE)
        bmc = here.process(credentials=login.read, replace=login.replace)
        await rotate(bmc)
        told = (here.folder / "arguments").read_text()
        assert "store put" in told
        for password in (PASSWORD, here.kept["password"]):
            assert password not in told
            assert password not in store.conceal(f"the BMC said {password}"), "the one before is concealed too"
        await bmc.close()

    here.play(steps)


# --- the rules ---

# The AccountService of a Cisco UCS C240 M4 (akaliwod/iserver, doc/redfish-tests-cisco-ucsc-c240-m4sx), and of OpenBMC,
# whose 0 and absent values stand for no rule.
CISCO = {"AccountLockoutDuration": 0, "AccountLockoutThreshold": 0, "MaxPasswordLength": 20, "MinPasswordLength": 8}
DELL = {"AccountLockoutThreshold": 0, "MaxPasswordLength": 40, "MinPasswordLength": 0}


@pytest.mark.parametrize("service", [CISCO, DELL, {}, {"MaxPasswordLength": "20", "MinPasswordLength": None}])
def test_real_rules_lead_to_a_password_that_ipmi_has_room_for(service: dict[str, Any]) -> None:
    assert Rules.of(service).length() == LONG


@given(st.integers(SHORT, 64))
def test_a_password_has_a_character_of_each_class_and_begins_with_a_letter(length: int) -> None:
    found = new_password(length)
    assert len(found) == length
    assert found[0].isalpha()
    for is_of in (str.islower, str.isupper, str.isdigit, lambda one: one in "-_."):
        assert any(map(is_of, found))
    assert new_password(length) != found
