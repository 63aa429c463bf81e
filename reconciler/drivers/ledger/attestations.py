"""Endorsement keys of nodes' TPMs, and the last boot of each node that a quote proved."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.rows import instant, to_instant, to_json
from reconciler.drivers.ledger.schema import attestations
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
                problem = f"its TPM is another one than at its first enrolment: {fingerprint}, not {known[node]}"
            else:
                problem = ""
                write_sealed(connection, instant(now), attestations, {"node": node, "endorsement": fingerprint})
            event, data = ("incident", "enrolled")[not problem], to_json({"endorsement": fingerprint})
            detail = problem or f"its TPM is enrolled: {fingerprint}"
            write_journal(connection, instant(now), "", node, event, detail=detail, data=data)
        return problem

    def save_attestation(self, node: str, attestation: Attestation, evidence: Mapping[str, Any]) -> None:
        at = instant(attestation.at)
        row = {
            "node": node, "boot_id": attestation.boot_id, "reference": attestation.reference, "at": at,
            "phase": attestation.phase,
        }  # fmt: skip
        with self._database.write([attestations], [node]) as connection:
            write_sealed(connection, at, attestations, row)
            detail = f"a quote proves its boot {attestation.boot_id}"
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
