"""Node records: identities, silences, applied values, nonces and certificates.

Identities and silences of many nodes are written in one statement each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from reconciler.drivers.ledger import chain
from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.cache import Cache, Rows
from reconciler.drivers.ledger.episodes import MANY, of_nodes
from reconciler.drivers.ledger.holds import released
from reconciler.drivers.ledger.reader import read_records
from reconciler.drivers.ledger.rows import instant, to_certificate, to_json
from reconciler.drivers.ledger.schema import applied, certificates, journal, nodes, path_sets, silences
from reconciler.drivers.ledger.writing import insert_new, upsert, write_journal
from reconciler.model.documents import dump
from reconciler.model.gate import Certificate
from reconciler.model.records import CLOCK_SET, NodeRecord, after, is_event_key

_IDENTIFIED = "its BMC and its host agree on its serial number"
_Identity = tuple[str | None, str | None]  # serial, UUID


class SqlNodes(SqlRole):
    def node(self, name: str) -> NodeRecord:
        return self.nodes([name])[name]

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeRecord]:
        def cached(cache: Cache) -> dict[str, NodeRecord] | None:
            found = {name: record for name in names if (record := cache.record(name)) is not None}
            return found if len(found) == len(set(names)) else None

        return self._database.read_cached(
            cached, lambda connection, cache: read_records(connection, names, cache, self._fleet)
        )

    def known(self) -> Sequence[str]:
        def held(cache: Cache) -> Rows[bool] | None:
            found: Rows[bool] | None = cache.tables.get(applied.name)
            return found if cache.tables.get(nodes.name) is found else None  # it goes by both tables

        def cached(cache: Cache) -> list[str] | None:
            found = held(cache)
            return None if found is None or found.again else sorted(found.by_node)

        def anew(connection: sa.Connection, cache: Cache) -> list[str]:
            node, found = applied.c.node, held(cache)
            query = sa.select(node).distinct().join(nodes, nodes.c.node == node, isouter=True).where(self._ours(nodes))
            if found is None or len(found.again) > MANY:
                found = cache.tables[applied.name] = cache.tables[nodes.name] = Rows({})
            else:
                query = query.where(node.in_(list(found.again)))
            found.renew(dict.fromkeys(connection.execute(query).scalars(), True))
            return sorted(found.by_node)

        return self._database.read_cached(cached, anew)

    def remember_identities(self, found: Mapping[str, tuple[str | None, str | None]], now: datetime) -> None:
        if not found:
            return
        common = {"identity_at": instant(now), "fleet": self._fleet}
        with self._database.write([nodes], list(found)) as connection:
            # An upsert writes the same columns of all its rows.
            for given in {_given(identity) for identity in found.values()}:
                alike = {node: identity for node, identity in found.items() if _given(identity) == given}
                rows = [{"node": node, **_columns(given, one), **common} for node, one in alike.items()]
                upsert(connection, nodes, rows)
            known = _identities(connection, found)
            event = {"at": instant(now), "run": "", "event": chain.IDENTITY, "detail": _IDENTIFIED}
            events = [{**event, "node": node, "data": to_json(chain.identity_of(*known[node]))} for node in found]
            chain.append(connection, events)  # `audit verify` compares them with the table

    def note_silences(self, changes: Sequence[tuple[str, str, bool]], now: datetime) -> None:
        if not changes:
            return
        with self._database.write([silences], [node for node, _, _ in changes]) as connection:
            ended = [{"whose": node, "what": source} for node, source, silent in changes if not silent]
            if ended:
                this = (silences.c.node == sa.bindparam("whose")) & (silences.c.source == sa.bindparam("what"))
                connection.execute(silences.delete().where(this), ended)
            new = [(node, source) for node, source, silent in changes if silent]
            known = released(connection, {node for node, source in new if is_event_key(source)})
            begun = [
                {
                    "node": node,
                    "source": source,
                    "since": instant(after(now, known.get(node)) if is_event_key(source) else now),
                }
                for node, source in new
            ]
            if begun:
                insert_new(connection, silences, begun)

    def note_clock(self, steps: Sequence[tuple[str, float]], now: datetime, ahead_of: datetime | None = None) -> None:
        values = {} if ahead_of is None else {"data": to_json(instant(ahead_of))}
        with self._database.write([journal], [node for node, _ in steps]) as connection:
            for node, step_s in steps:
                write_journal(connection, instant(now), "", node, CLOCK_SET, detail=f"{step_s:+.3f}", **values)

    def forget(self, names: Sequence[str], now: datetime) -> None:
        if not names:
            return
        with self._database.write([applied, nodes], names) as connection:
            gone = [{"gone": name} for name in names]
            connection.execute(applied.delete().where(applied.c.node == sa.bindparam("gone")), gone)
            emptied = nodes.update().where(nodes.c.node == sa.bindparam("gone")).values(paths=None, fleet="")
            connection.execute(emptied, gone)
            common = {"at": instant(now), "run": "", "event": "forget", "detail": "it has left the spec"}
            chain.append(connection, [common | {"node": name} for name in names])

    def remember_applied(
        self, node: str, values: Mapping[str, Any], spec_digest: str, commit: str, now: datetime
    ) -> None:
        row = {"node": node, "spec_digest": spec_digest, "commit_id": commit, "at": instant(now)}
        rows = [row | {"path": path, "value": to_json(value)} for path, value in values.items()]
        with self._database.write([applied], [node]) as connection:
            upsert(connection, applied, rows)

    def remember_paths(self, names: Sequence[str], paths: frozenset[str]) -> None:
        text = to_json(sorted(paths))
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._database.write([nodes], names) as connection:
            upsert(connection, path_sets, [{"digest": digest, "paths": text}])
            upsert(connection, nodes, [{"node": name, "paths": digest, "fleet": self._fleet} for name in names])

    def set_nonce(self, node: str, nonce: str, now: datetime) -> None:
        row = {"node": node, "nonce": nonce, "nonce_at": instant(now), "fleet": self._fleet}
        with self._database.write([nodes], [node]) as connection:
            upsert(connection, nodes, [row])

    def save_certificate(self, certificate: Certificate) -> None:
        at = instant(certificate.issued_at)
        document = dump(certificate)
        verdicts = ", ".join(f"{result.test} {result.verdict.value}" for result in certificate.measured)
        with self._database.write([certificates, journal], [certificate.node]) as connection:
            values = {"node": certificate.node, "issued_at": at, "document": document}
            key = connection.execute(certificates.insert().values(values)).inserted_primary_key
            assert key is not None
            seal = to_json(chain.seal_of(key[0], document))
            detail = "adopted" if certificate.adopted else verdicts
            write_journal(connection, at, "", certificate.node, "certificate", detail=detail, data=seal)

    def first_certificate(self, node: str, image_sha256: str) -> Certificate | None:
        """Return the oldest certificate with tests that a node has for an image. A damaged one is passed over."""
        query = sa.select(certificates).where(certificates.c.node == node).order_by(certificates.c.id)
        with self._database.read() as connection:
            for row in connection.execute(query):
                try:
                    found = to_certificate(row)
                except ValueError:
                    continue
                if found.binding.image_sha256 == image_sha256 and not found.adopted:
                    return found
        return None


def _given(identity: _Identity) -> tuple[bool, bool]:
    return identity[0] is not None, identity[1] is not None


def _columns(given: tuple[bool, bool], identity: _Identity) -> dict[str, str | None]:
    return {name: cell for name, is_given, cell in zip(("serial", "uuid"), given, identity, strict=True) if is_given}


def _identities(connection: sa.Connection, wanted: Mapping[str, _Identity]) -> dict[str, _Identity]:
    query = sa.select(nodes.c.node, nodes.c.serial, nodes.c.uuid).where(of_nodes(nodes.c.node, list(wanted)))
    return {node: (serial, uuid) for node, serial, uuid in connection.execute(query) if node in wanted}
