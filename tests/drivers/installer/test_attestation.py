"""Attestation: the calls that carry it, and that nothing is certified but the key that the TPM vouched for."""

from __future__ import annotations

import pytest

from reconciler.drivers.installer.signer import normal_key
from reconciler.model.attestor import AttestationVerdict, Attestor
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import (
    AttestationBegin,
    AttestationChallenge,
    AttestationFinish,
    ContractError,
    InstallDocument,
    dump_contract,
    load_contract,
)
from tests.drivers.installer.conftest import DOCUMENT, NODE, TOKEN, Answer, Site, ask, new_host_key, report, run

pytestmark = [pytest.mark.wire, pytest.mark.tool]

MEASURED = DOCUMENT.model_copy(update={"attest": True})
BEGIN = AttestationBegin(ek="ZWs=", ak="YWs=")


class OneMachine:
    """Trusts whoever opens its secret. The cryptography is another part's, and tested there."""

    async def begin(self, document: InstallDocument, begin: AttestationBegin) -> AttestationChallenge:
        assert document == MEASURED
        if begin.ek == "b3RoZXI=":
            raise DriverError(Failure.REJECTED, "this endorsement key is another node's")
        return AttestationChallenge(credential="Yw==", secret="cw==", nonce="bg==")

    async def finish(self, document: InstallDocument, finish: AttestationFinish) -> AttestationVerdict:
        assert document == MEASURED
        if not finish.event_log:
            raise ContractError("event_log: it is empty")
        trusted = finish.secret == "b3BlbmVk"
        return AttestationVerdict(trusted, "" if trusted else "the quote's nonce was used before")


_attestor: type[Attestor] = OneMachine


def finish(key: str, secret: str = "b3BlbmVk", log: str = "bG9n") -> str:
    return dump_contract(
        AttestationFinish(secret=secret, quote="cQ==", signature="cw==", pcrs={4: "00"}, event_log=log, host_key=key)
    )


def test_a_document_that_needs_attestation_is_refused_where_nobody_judges_it(site: Site) -> None:
    async def play() -> None:
        async with site.serving() as installer:
            with pytest.raises(DriverError, match="asks for attestation") as refused:
                await installer.publish(TOKEN, MEASURED, None)
            assert refused.value.kind is Failure.REJECTED
            base = (await installer.publish(TOKEN, DOCUMENT, None)).removesuffix("/boot.iso")
            assert (await ask("POST", f"{base}/attest/begin", data=dump_contract(BEGIN))).status == 404
            assert (await ask("POST", f"{base}/attest/finish", data="{}")).status == 404

    run(play())


def test_only_the_quoted_key_is_certified(site: Site) -> None:
    site.attestor = OneMachine()
    key, other = new_host_key(site.folder), new_host_key(site.folder, "other")
    store = site.ledger()

    async def play() -> None:
        async with site.serving(store) as installer:
            base = (await installer.publish(TOKEN, MEASURED, None)).removesuffix("/boot.iso")

            async def post(path: str, data: str) -> Answer:
                return await ask("POST", f"{base}/{path}", data=data)

            await report(base, "written")
            early = await post("hostkey", key)
            assert (early.status, "once the TPM has vouched for it" in early.text) == (409, True)
            begun = await post("attest/begin", dump_contract(BEGIN))
            assert load_contract(AttestationChallenge, begun.body).nonce == "bg=="
            stranger = await post("attest/begin", dump_contract(BEGIN.model_copy(update={"ek": "b3RoZXI="})))
            assert (stranger.status, stranger.text) == (403, "this endorsement key is another node's")
            for data, status, reason in (
                ("{}", 400, "secret: Field required"),
                (finish(key, log=""), 400, "event_log: it is empty"),
                (finish("nonsense"), 400, "host_key: not an OpenSSH public key"),
                (finish(key, secret="Zm9yZ2Vk"), 403, "the quote's nonce was used before"),
            ):
                answer = await post("attest/finish", data)
                assert (answer.status, answer.text) == (status, reason)
            assert (await post("hostkey", key)).status == 409
            assert (await post("attest/finish", finish(key))).status == 204
            assert (await post("hostkey", key)).status == 200
            assert (await post("hostkey", other)).status == 403
            assert (await installer.progress(TOKEN)).incident

    run(play())
    assert sorted(store.revoked_host_keys()) == sorted(map(normal_key, (key, other)))
    told = [entry.detail for entry in store.history(NODE)]
    assert "the machine can't be trusted: the quote's nonce was used before" in told
    assert f"the TPM vouches for host key {normal_key(key)}" in told


def test_a_second_key_with_a_good_quote_is_an_incident_too(site: Site) -> None:
    site.attestor = OneMachine()
    keys = [new_host_key(site.folder, name) for name in ("one", "two")]

    async def play() -> None:
        async with site.serving() as installer:
            base = (await installer.publish(TOKEN, MEASURED, None)).removesuffix("/boot.iso")
            answers = [await ask("POST", f"{base}/attest/finish", data=finish(key)) for key in keys]
            assert [one.status for one in answers] == [204, 403]
            assert (await installer.progress(TOKEN)).ended

    run(play())
