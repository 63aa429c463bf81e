"""SshHost against a server that misbehaves: cuts, garbage, silence, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncssh
import pytest

from reconciler.drivers.ssh import SshHost
from reconciler.model.errors import DriverError, Failure
from reconciler.model.fact_framing import build_answer, parse_program
from reconciler.model.gate import CommandResult
from reconciler.model.observed import Answered, HostFacts, Silent
from reconciler.model.vocab import UnknownReason
from tests.drivers.ssh.conftest import NODE, HostFactory, Keys, certify, free_port

pytestmark = pytest.mark.wire

Process = asyncssh.SSHServerProcess[bytes]
Handler = Callable[[Process], Awaitable[None]]


@asynccontextmanager
async def server(keys: Keys, handler: Handler | None, *, host_keys: Any = None, **options: Any) -> AsyncIterator[int]:
    """An SSH server that gives each command to `handler`; its port."""
    authorized = asyncssh.import_authorized_keys(keys.login.export_public_key().decode())

    class Login(asyncssh.SSHServer):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            self.connection = conn

        def begin_auth(self, _username: str) -> bool:
            self.connection.set_authorized_keys(authorized)
            return True

    acceptor = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=options.pop("login", Login),
        server_host_keys=host_keys or [(keys.host, keys.certificate)],
        process_factory=handler,
        encoding=None,
        **options,
    )
    try:
        yield acceptor.get_port()
    finally:
        acceptor.close()
        await acceptor.wait_closed()


async def frame(process: Process) -> tuple[str, bytes]:
    """The nonce of the program that was sent, and a whole answer to it."""
    nonce, asked = parse_program((await process.stdin.read()).decode())
    return nonce, build_answer(nonce, {ask.name: CommandResult(0, "x\n") for ask in asked})


def ask(keys: Keys, make_host: HostFactory, handler: Handler, **changes: Any) -> Answered[HostFacts] | Silent:
    async def once() -> Answered[HostFacts] | Silent:
        async with server(keys, handler) as port:
            host = make_host(port, **changes)
            try:
                return await host.facts([], [])
            finally:
                await host.close()

    return asyncio.run(once())


def silence(keys: Keys, make_host: HostFactory, handler: Handler, **changes: Any) -> Silent:
    answer = ask(keys, make_host, handler, **changes)
    assert isinstance(answer, Silent)
    assert NODE in answer.detail
    return answer


# --- the answer to the facts program -----------------------------------------------------------------------------


def test_banners_around_an_answer(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        _, answer = await frame(process)
        process.stdout.write(b"*** authorised use only ***\n" + answer + b"logout\n")
        process.exit(0)

    answer = ask(keys, make_host, handler)
    assert isinstance(answer, Answered)
    assert answer.value.hostname == "x"


def test_a_channel_that_stays_open_after_the_answer(keys: Keys, make_host: HostFactory) -> None:
    """A process that the facts left behind holds it."""

    async def handler(process: Process) -> None:
        _, answer = await frame(process)
        process.stdout.write(answer)
        await process.wait_closed()

    assert isinstance(ask(keys, make_host, handler), Answered)


def test_an_answer_in_crumbs(keys: Keys, make_host: HostFactory) -> None:
    """The last line may also arrive in pieces."""

    async def handler(process: Process) -> None:
        _, answer = await frame(process)
        process.stdout.write(answer[:-60])
        for byte in answer[-60:]:
            await asyncio.sleep(0.001)
            process.stdout.write(bytes([byte]))
        await process.wait_closed()

    assert isinstance(ask(keys, make_host, handler), Answered)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_an_answer_that_ends_early(keys: Keys, make_host: HostFactory, share: float) -> None:
    async def handler(process: Process) -> None:
        _, answer = await frame(process)
        process.stdout.write(answer[: int(share * len(answer))])
        process.exit(0)

    assert silence(keys, make_host, handler).reason is UnknownReason.MALFORMED


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_connection_that_is_cut(keys: Keys, make_host: HostFactory, share: float) -> None:
    async def handler(process: Process) -> None:
        _, answer = await frame(process)
        process.stdout.write(answer[: int(share * len(answer))])
        await asyncio.sleep(0.05)
        process.channel.get_connection().abort()

    answer = silence(keys, make_host, handler)
    assert answer.reason is UnknownReason.UNREACHABLE
    assert "was lost" in answer.detail


def test_an_answer_to_somebody_else(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        await frame(process)
        process.stdout.write(build_answer("0" * 32, {}))
        process.exit(0)

    assert silence(keys, make_host, handler).reason is UnknownReason.MALFORMED


def test_the_program_echoed(keys: Keys, make_host: HostFactory) -> None:
    """The nonce alone is no frame."""

    async def handler(process: Process) -> None:
        process.stdout.write(await process.stdin.read())
        process.exit(0)

    assert silence(keys, make_host, handler).reason is UnknownReason.MALFORMED


def test_nonces_are_never_the_same(keys: Keys, make_host: HostFactory) -> None:
    seen = []

    async def handler(process: Process) -> None:
        nonce, answer = await frame(process)
        seen.append(nonce)
        process.stdout.write(answer)
        process.exit(0)

    for _ in range(3):
        ask(keys, make_host, handler)
    assert len(set(seen)) == 3
    assert all(len(nonce) == 32 for nonce in seen)


def test_garbage(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        process.stdout.write(bytes(range(256)) * 100)
        process.stderr.write(b"\xff\x00")
        process.exit(0)

    assert silence(keys, make_host, handler).reason is UnknownReason.MALFORMED


def test_an_endless_answer(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        while not process.is_closing():
            process.stdout.write(b"y\n" * 100_000)
            await process.stdout.drain()

    answer = silence(keys, make_host, handler)
    assert answer.reason is UnknownReason.MALFORMED
    assert "more than" in answer.detail


def test_an_account_without_a_shell(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        process.stdout.write(b"This account is currently not available.\n")
        process.exit(1)

    answer = silence(keys, make_host, handler)
    assert answer.reason is UnknownReason.MALFORMED
    assert "not available" in answer.detail


def test_a_host_that_never_answers(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        await process.wait_closed()

    answer = silence(keys, make_host, handler, facts_timeout=0.3)
    assert answer.reason is UnknownReason.TIMEOUT


@pytest.mark.parametrize(("deadline", "least", "most"), [(6.0, 3.0, 3.0), (20.0, 5.0, 15.0), (60.0, 15.0, 45.0)])
def test_facts_are_bounded_by_what_there_is_time_for(
    keys: Keys, make_host: HostFactory, deadline: float, least: float, most: float
) -> None:
    asked: list[float] = []

    async def handler(process: Process) -> None:
        _, program = parse_program((await process.stdin.read()).decode())
        asked.extend(request.timeout_s for request in program)
        process.exit(0)

    ask(keys, make_host, handler, facts_timeout=deadline)
    assert (min(asked), max(asked)) == (least, most)


# --- before the login --------------------------------------------------------------------------------------------


async def nothing(process: Process) -> None:
    process.exit(0)


def refused(keys: Keys, make_host: HostFactory, changes: dict[str, Any] | None = None, **options: Any) -> Silent:
    async def once() -> Silent:
        async with server(keys, nothing, **options) as port:
            answer = await make_host(port, **(changes or {})).facts([], [])
            assert isinstance(answer, Silent)
            return answer

    return asyncio.run(once())


def test_a_plain_host_key_is_not_signed(keys: Keys, make_host: HostFactory) -> None:
    answer = refused(keys, make_host, host_keys=[keys.host])
    assert answer.reason is UnknownReason.AUTH
    assert "not signed by the fleet's CA" in answer.detail


@pytest.mark.parametrize(
    ("validity", "reason"),
    [
        ({"valid_after": "20200101", "valid_before": "20200201"}, UnknownReason.EXPIRED),
        ({"valid_after": "+1d"}, UnknownReason.AUTH),
    ],
)
def test_a_certificate_out_of_its_time(
    keys: Keys, make_host: HostFactory, validity: dict[str, str], reason: UnknownReason
) -> None:
    certificate = certify(keys.authority, keys.host, NODE, **validity)
    assert refused(keys, make_host, host_keys=[(keys.host, certificate)]).reason is reason


def test_a_user_certificate_is_no_host_certificate(keys: Keys, make_host: HostFactory) -> None:
    certificate = keys.authority.generate_user_certificate(keys.host, NODE, principals=[NODE])
    assert refused(keys, make_host, host_keys=[(keys.host, certificate)]).reason is UnknownReason.AUTH


def test_no_common_algorithm(keys: Keys, make_host: HostFactory) -> None:
    answer = refused(keys, make_host, encryption_algs=["3des-cbc"])
    assert answer.reason is UnknownReason.UNSUPPORTED


def test_the_key_is_not_shown_to_a_stranger(keys: Keys, make_host: HostFactory) -> None:
    logins = []

    class Login(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            logins.append(username)
            return True

    stranger = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    refused(keys, make_host, {"authorities": [stranger]}, login=Login)
    assert logins == []


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def plain(talk: Talk) -> AsyncIterator[int]:
    """A TCP port that is no SSH server."""
    talks: list[asyncio.Task[None]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.create_task(handle(reader, writer)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await asyncio.gather(*talks)


def meet(talk: Talk, make_host: HostFactory) -> Silent:
    async def once() -> Silent:
        async with plain(talk) as port:
            answer = await make_host(port, connect_timeout=0.5).facts([], [])
            assert isinstance(answer, Silent)
            return answer

    return asyncio.run(once())


def test_whether_it_was_reached_shows_while_it_is_waited_for(make_host: HostFactory) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def reached() -> list[bool]:
        seen = []
        async with plain(talk) as port:
            host = make_host(port, connect_timeout=0.5)
            asked = asyncio.create_task(host.facts([], []))
            seen.append(host.reached)
            await asyncio.sleep(0.2)
            seen.append(host.reached)
            await asked
        return seen

    assert asyncio.run(reached()) == [False, True]


def test_a_port_that_says_nothing(make_host: HostFactory) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    answer = meet(talk, make_host)
    assert answer.reason is UnknownReason.TIMEOUT
    assert "accepts connections" in answer.detail


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"SSH-1.5-old\r\n", b"SSH-2.0-x\r\n\x00\x00\x00"]
)
def test_a_port_that_speaks_no_ssh(make_host: HostFactory, said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)

    answer = meet(talk, make_host)
    assert answer.reason in (UnknownReason.UNREACHABLE, UnknownReason.MALFORMED, UnknownReason.UNSUPPORTED)
    assert NODE in answer.detail


# --- commands ----------------------------------------------------------------------------------------------------


def test_a_connection_cut_under_a_command_is_ambiguous(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        process.channel.get_connection().abort()

    async def once() -> None:
        async with server(keys, handler) as port:
            with pytest.raises(DriverError) as caught:
                await make_host(port).run(["systemctl", "reboot"], timeout=5)
            assert caught.value.kind is Failure.AMBIGUOUS
            assert "systemctl reboot" in caught.value.detail

    asyncio.run(once())


def test_a_connection_cut_at_the_start_of_a_command_is_ambiguous(keys: Keys, make_host: HostFactory) -> None:
    """The host agreed to a session, and was gone before it said that the command runs."""

    class Gone(asyncssh.SSHServerSession[bytes]):
        def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
            self.channel = chan

        def exec_requested(self, _command: str) -> bool:
            self.channel.get_connection().abort()
            return True

    class Login(asyncssh.SSHServer):
        def begin_auth(self, _username: str) -> bool:
            return False

        def session_requested(self) -> Any:
            return Gone()

    async def once() -> None:
        async with server(keys, None, login=Login) as port:
            with pytest.raises(DriverError) as caught:
                await make_host(port).run(["true"], timeout=5)
            assert caught.value.kind is Failure.AMBIGUOUS

    asyncio.run(once())


def test_a_session_without_an_exit_status_is_ambiguous(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        process.close()

    async def once() -> None:
        async with server(keys, handler) as port:
            host = make_host(port)
            with pytest.raises(DriverError) as caught:
                await host.run(["true"], timeout=5)
            await host.close()
            assert caught.value.kind is Failure.AMBIGUOUS

    asyncio.run(once())


def test_a_host_that_can_not_be_reached_did_nothing(make_host: HostFactory) -> None:
    with pytest.raises(DriverError) as caught:
        asyncio.run(make_host(free_port()).run(["true"], timeout=5))
    assert caught.value.kind is Failure.UNREACHABLE


def test_a_server_that_opens_no_session(keys: Keys, make_host: HostFactory) -> None:
    """No process factory: the login succeeds, every session is refused."""

    async def once() -> None:
        async with server(keys, None) as port:
            host = make_host(port)
            with pytest.raises(DriverError) as caught:
                await host.run(["true"], timeout=5)
            assert caught.value.kind is Failure.REJECTED
            assert isinstance(await host.facts([], []), Silent)
            await host.close()

    asyncio.run(once())


def test_a_host_without_timeout_is_watched_from_here(keys: Keys, make_host: HostFactory) -> None:
    commands: list[str | None] = []

    async def handler(process: Process) -> None:
        commands.append(process.command)
        if process.command and process.command.startswith("timeout"):
            process.stderr.write(b"bash: line 1: timeout: command not found\n")
            process.exit(127)
        elif process.command == "sleep 60":
            process.stdout.write(b"begun\n")
            await process.wait_closed()
        else:
            process.exit(0)

    async def once(host: SshHost) -> None:
        assert (await host.run(["true"], timeout=5)).exit_status == 0
        slow = await host.run(["sleep", "60"], timeout=0.2)
        assert slow == CommandResult(-1, "begun\n", "", timed_out=True)
        await host.close()

    async def serve() -> None:
        async with server(keys, handler) as port:
            await once(make_host(port))

    asyncio.run(serve())
    assert commands == ["timeout -k 5 5 true", "true", "sleep 60"]


def test_a_dead_connection_is_replaced_before_anything_is_asked(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        process.stdout.write(b"ok\n")
        process.exit(0)
        if process.command and "last" in process.command:
            await asyncio.sleep(0.05)
            process.channel.get_connection().abort()

    async def once() -> None:
        async with server(keys, handler) as port:
            host = make_host(port)
            for word in ("first", "last", "next", "last", "next"):
                assert (await host.run([word], timeout=5)).stdout == "ok\n"
                await asyncio.sleep(0.1)
            await host.close()

    asyncio.run(once())


def test_two_at_a_time_share_one_connection(keys: Keys, make_host: HostFactory) -> None:
    peers = set()

    async def handler(process: Process) -> None:
        peers.add(process.get_extra_info("peername"))
        await asyncio.sleep(0.05)
        process.exit(0)

    async def once() -> None:
        async with server(keys, handler) as port:
            host = make_host(port)
            await asyncio.gather(*(host.run(["true"], timeout=5) for _ in range(5)))
            await host.close()

    asyncio.run(once())
    assert len(peers) == 1


def test_cancelling_leaves_nothing_behind(keys: Keys, make_host: HostFactory) -> None:
    async def handler(process: Process) -> None:
        await process.wait_closed()

    async def once() -> None:
        async with server(keys, handler) as port:
            host = make_host(port)
            for ask_or_run in (lambda: host.facts([], []), lambda: host.run(["x"], timeout=60)):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await ask_or_run()
            await host.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert not [task for task in others if "SshHost" in repr(task)]

    asyncio.run(once())
