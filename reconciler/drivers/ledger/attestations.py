"""Endorsement keys of nodes' TPMs and their exchange, and the last boot of each node that a quote proved."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import from_json, instant, to_instant, to_json
from reconciler.drivers.ledger.schema import attestations, journal
from reconciler.drivers.ledger.writing import write_journal, write_sealed
from reconciler.model.measurements import Attestation


class SqlAttestations(SqlRole):
    def bind_endorsement(self, node: str, fingerprint: str, now: datetime) -> str:
        with self._database.write([attestations], [node]) as connection:
            known = _known(connection, attestations.c.node == node)
            others = _known(connection, attestations.c.endorsement == fingerprint)
            if fingerprint in known.values():
                return ""
            if others:
                problem = f"its TPM is that of node {', '.join(sorted(others))}"
            elif known.get(node):
                problem = f"its TPM is another one than at its first enrolment: {fingerprint}, not {known[node]}; "
                problem += f"if its mainboard was replaced: reconciler ledger accept-tpm {node}"
            else:
                problem = ""
                write_sealed(connection, instant(now), attestations, {"node": node, "endorsement": fingerprint})
            event, data = ("incident", "enrolled")[not problem], to_json({"endorsement": fingerprint})
            detail = problem or f"its TPM is enrolled: {fingerprint}"
            write_journal(connection, instant(now), "", node, event, detail=detail, data=data)
        return problem

    def refused_endorsement(self, node: str) -> str:
        """Return the TPM that was refused last on a node, unless another was enrolled since; "" for none."""
        query = sa.select(journal.c.event, journal.c.data).where(
            journal.c.node == node, journal.c.event.in_(("incident", "enrolled"))
        )
        with self._database.read() as connection:
            for event, cell in connection.execute(query.order_by(journal.c.id.desc())):
                if event == "enrolled":
                    return ""
                data = from_json(cell, "an incident's data")
                if isinstance(data, dict) and data.get("endorsement"):
                    return str(data["endorsement"])
        return ""

    def accept_endorsement(self, node: str, before: str, after: str, told: str, now: datetime) -> str:
        """Enrol another TPM in place of the node's own; what the old one proved counts no more.

        `told`: who accepts it, and why. Return "", or why it is not accepted, which changes nothing.
        """
        with self._database.write([attestations], [node]) as connection:
            if _known(connection, attestations.c.node == node).get(node) != before:
                return "another TPM was enrolled meanwhile"
            if others := sorted(_known(connection, attestations.c.endorsement == after)):
                return f"the TPM is that of node {', '.join(others)}"
            nothing = dict.fromkeys(("boot_id", "reference", "at", "phase"))
            write_sealed(connection, instant(now), attestations, {"node": node, "endorsement": after, **nothing})
            data = to_json({"endorsement": after, "before": before})
            detail = f"its TPM is accepted: {after}, in place of {before}, {told}"
            write_journal(connection, instant(now), "", node, "enrolled", detail=detail, data=data)
        return ""

    def save_attestation(self, node: str, attestation: Attestation, evidence: Mapping[str, Any]) -> None:
        at = instant(attestation.at)
        row = {
            "node": node, "boot_id": attestation.boot_id, "reference": attestation.reference, "at": at,
            "phase": attestation.phase,
        }  # fmt: skip
        with self._database.write([attestations], [node]) as connection:
            write_sealed(connection, at, attestations, row)
            proof = "a quote proves" if attestation.phase else "the signatures of its components prove"
            detail = f"{proof} its boot {attestation.boot_id}"
            write_journal(connection, at, "", node, "attested", detail=detail, data=to_json(evidence))


def to_attestation(row: Any) -> Attestation | None:
    """Return the boot that was proved; None where only the TPM is known."""
    if row.boot_id is None:
        return None
    at = to_instant(row.at, f"time of the quote of {row.node}")
    return Attestation(row.reference, at, row.phase, row.boot_id)


def _known(connection: sa.Connection, where: sa.ColumnElement[bool]) -> dict[str, str]:
    query = sa.select(attestations.c.node, attestations.c.endorsement).where(where)
    return {node: endorsement for node, endorsement in connection.execute(query) if endorsement}
