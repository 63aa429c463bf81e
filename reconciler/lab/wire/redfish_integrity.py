"""ComponentIntegrity: components that sign what they measured, in the shape of the tree of a GB200 NVL.

NVIDIA/libredfish, tests/mockups/nvidia_gb200: members, certificate chains under Chassis, and an ActionInfo. The action
is answered with a task, whose end names the answer's place in its payload (bmcweb of NVIDIA, component_integrity.hpp).
"""

from __future__ import annotations

import re

from reconciler.lab.wire.redfish_messages import Refusal
from reconciler.lab.wire.redfish_protocol import ROOT, Bmc, Document, Reply, Resource, Routes, collection, link, odata
from reconciler.lab.wire.redfish_update import TASKS, task_document

INTEGRITY = f"{ROOT}/ComponentIntegrity"
_CHASSIS = f"{ROOT}/Chassis"
_ACTION = "ComponentIntegrity.SPDMGetSignedMeasurements"
_NONCE = re.compile(r"[0-9a-fA-F]{64}")


def _collection(bmc: Bmc, member: str) -> Document | None:
    if not bmc.machine.component_ids:
        return None
    listed = collection(
        INTEGRITY, "ComponentIntegrity", "ComponentIntegrity Collection", lambda one: one.machine.component_ids
    )
    return listed(bmc, member)


def _member(bmc: Bmc, id_: str) -> Document | None:
    if id_ not in bmc.machine.component_ids:
        return None
    chain = link(f"{_CHASSIS}/{id_}/Certificates/CertChain")
    return odata(f"{INTEGRITY}/{id_}", "ComponentIntegrity.v1_0_0", f"SPDM Integrity for {id_}") | {
        "Actions": {
            f"#{_ACTION}": {
                "@Redfish.ActionInfo": f"{INTEGRITY}/{id_}/SPDMGetSignedMeasurementsActionInfo",
                "target": f"{INTEGRITY}/{id_}/Actions/{_ACTION}",
            }
        },
        "ComponentIntegrityEnabled": True,
        "ComponentIntegrityType": "SPDM",
        "ComponentIntegrityTypeVersion": "1.1.0",
        "Links": {"ComponentsProtected": []},
        "SPDM": {
            "IdentityAuthentication": {"ResponderAuthentication": {"ComponentCertificate": chain}},
            "Requester": link(f"{ROOT}/Managers/1"),
        },
        "TargetComponentURI": f"{_CHASSIS}/{id_}",
    }


def _chain(bmc: Bmc, id_: str) -> Document | None:
    if id_ not in bmc.machine.component_ids:
        return None
    path = f"{_CHASSIS}/{id_}/Certificates/CertChain"
    return odata(path, "Certificate.v1_5_0", f"{id_} Certificate Chain") | {
        "CertificateString": bmc.machine.certificates(id_),
        "CertificateType": "PEMchain",
        "CertificateUsageTypes": ["Device"],
        "SPDM": {"SlotId": 0},
    }


def _measure(bmc: Bmc, id_: str, body: Document) -> Reply:
    if id_ not in bmc.machine.component_ids:
        raise Refusal("ResourceMissingAtURI", f"{INTEGRITY}/{id_}")
    nonce = body.get("Nonce")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise Refusal("ActionParameterValueFormatError", str(nonce), "Nonce", _ACTION, related=["Nonce"])
    number = bmc.machine.measure(id_, bytes.fromhex(nonce))
    return Reply(202, task_document(bmc, bmc.state.tasks[number]), {"Location": f"{TASKS}/{number}/Monitor"})


def _answer(bmc: Bmc, id_: str) -> Document | None:
    found = bmc.machine.answers.get(id_)
    if found is None:
        return None
    return {
        "HashingAlgorithm": found.hash,
        "SignedMeasurements": found.signed,
        "SigningAlgorithm": "TPM_ALG_ECDSA_ECC_NIST_P384",
        "Version": "1.1.0",
    }


ROUTES: Routes = {
    INTEGRITY: Resource(get=_collection),
    f"{INTEGRITY}/*": Resource(get=_member),
    f"{INTEGRITY}/*/Actions/{_ACTION}": Resource(post=_measure),
    f"{INTEGRITY}/*/Actions/{_ACTION}/data": Resource(get=_answer),
    f"{_CHASSIS}/*/Certificates/CertChain": Resource(get=_chain),
}
