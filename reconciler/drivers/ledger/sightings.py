"""Write identities and silences of many nodes in one statement each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from reconciler.drivers.ledger import chain
from reconciler.drivers.ledger.episodes import of_nodes
from reconciler.drivers.ledger.rows import to_json
from reconciler.drivers.ledger.schema import nodes, silences
from reconciler.drivers.ledger.writing import insert_new, upsert

IDENTIFIED = "its BMC and its host agree on its serial number"
Identity = tuple[str | None, str | None]  # serial, UUID


def identify(connection: sa.Connection, found: Mapping[str, Identity], fleet: str, at: str) -> None:
    """By node. What is None stays as it is known. The journal has a row for each, which `audit verify` reads."""
    common = {"identity_at": at, "fleet": fleet}
    for given in {_given(identity) for identity in found.values()}:  # an upsert writes the same cells of all its rows
        alike = {node: identity for node, identity in found.items() if _given(identity) == given}
        upsert(connection, nodes, [{"node": node, **_cells(given, one), **common} for node, one in alike.items()])
    known = _known(connection, found)
    said = {"at": at, "run": "", "event": chain.IDENTITY, "detail": IDENTIFIED}
    rows = [{**said, "node": node, "data": to_json(chain.identity_of(*known[node]))} for node in found]
    chain.append(connection, rows)


def _given(identity: Identity) -> tuple[bool, bool]:
    return identity[0] is not None, identity[1] is not None


def _cells(given: tuple[bool, bool], identity: Identity) -> dict[str, str | None]:
    return {name: cell for name, is_given, cell in zip(("serial", "uuid"), given, identity, strict=True) if is_given}


def _known(connection: sa.Connection, wanted: Mapping[str, Identity]) -> dict[str, Identity]:
    query = sa.select(nodes.c.node, nodes.c.serial, nodes.c.uuid).where(of_nodes(nodes.c.node, list(wanted)))
    return {node: (serial, uuid) for node, serial, uuid in connection.execute(query) if node in wanted}


def note(connection: sa.Connection, news: Sequence[tuple[str, str, bool]], at: str) -> None:
    """(node, source, whether it is silent): first those that have ended. What is silent already keeps its beginning."""
    over = [{"whose": node, "what": source} for node, source, silent in news if not silent]
    if over:
        this = (silences.c.node == sa.bindparam("whose")) & (silences.c.source == sa.bindparam("what"))
        connection.execute(silences.delete().where(this), over)
    begun = [{"node": node, "source": source, "since": at} for node, source, silent in news if silent]
    if begun:
        insert_new(connection, silences, begun)
