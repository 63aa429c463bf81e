"""Tables of the ledger, as they are now.

Times are ISO 8601 text in UTC of one width, so that they sort as text and mean the same in SQLite and PostgreSQL.
They and JSON are plain text columns on purpose: a damaged cell is then found by the code that decodes its row, and
stops one node (pitfall M6), instead of failing the query for all of them.

`journal` is append-only: attempts are its intents and outcomes, so that no code path can reset a counter. What is old
may be pruned on demand (`pruning`).
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("commit_id", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("started_at", sa.Text, nullable=False),
    sa.Column("ended_at", sa.Text),
    sa.Column("exit_code", sa.Integer),
    sa.Column("summary", sa.Text),
    sa.Column("fleet", sa.Text, nullable=False, server_default=""),  # "" = none was given
)

journal = sa.Table(
    "journal",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("event", sa.Text, nullable=False),  # intent | amendment | outcome | drift | hold | release | ...
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer),  # of an outcome or amendment: id of its intent; of an anchor: first of its rows
    sa.Column("token", sa.Integer),  # of an intent: of the lease it was written under; of a lease: its own
    sa.Column("detail", sa.Text, nullable=False),  # cause of an intent, text of anything else
    sa.Column("data", sa.Text, nullable=False),  # JSON; of an outcome: its word; of a certificate: its seal
    sa.Column("digest", sa.Text, nullable=False),  # of this row and of the one before it
    sa.Index("journal_node", "node", "id"),
    sa.Index("journal_attempt", "attempt"),
)


def is_event(table: sa.FromClause, event: str) -> sa.ColumnElement[bool]:
    """Return the condition for rows of an event, as a constant: an index of these rows is used for no parameter."""
    return table.c.event == sa.literal(event, literal_execute=True)


for _name, _column, _event in (
    ("journal_intents", journal.c.at, "intent"),
    ("journal_outcomes", journal.c.at, "outcome"),
    ("journal_leases", journal.c.token, "lease"),
    ("journal_anchors", journal.c.attempt, "prune"),
):  # few rows of the journal are of these events, and reports ask for them alone
    sa.Index(_name, _column, sqlite_where=is_event(journal, _event), postgresql_where=is_event(journal, _event))

open_attempts = sa.Table(  # attempts without an outcome: a few rows, which the journal has among millions
    "open_attempts",
    metadata,
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),  # id of its intent
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("serial", sa.Text),
    sa.Column("uuid", sa.Text),
    sa.Column("identity_at", sa.Text),
    sa.Column("nonce", sa.Text),
    sa.Column("nonce_at", sa.Text),
    sa.Column("paths", sa.Text),  # digest of a path set
    sa.Column("fleet", sa.Text, nullable=False, server_default=""),  # the fleet that met it first; "" = none
)

path_sets = sa.Table(  # what specs manage of nodes: few, and shared by many nodes
    "path_sets",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("paths", sa.Text, nullable=False),  # JSON
)

silences = sa.Table(
    "silences",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("since", sa.Text, nullable=False),
)

applied = sa.Table(
    "applied",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("spec_digest", sa.Text, nullable=False),
    sa.Column("commit_id", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
)

certificates = sa.Table(
    "certificates",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("node", sa.Text, nullable=False, index=True),
    sa.Column("issued_at", sa.Text, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
)

gate_tests = sa.Table(  # one row per attempt at a gate and test
    "gate_tests",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),  # in the journal
    sa.Column("profile", sa.Text, nullable=False),  # "" = the node's own
    sa.Column("test", sa.Text, nullable=False),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("tool_version", sa.Text, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("reasons", sa.Text, nullable=False),  # JSON
    sa.Column("peers", sa.Text, nullable=False),  # digest of what peers have in common
    sa.Column("started_at", sa.Text, nullable=False),
    sa.Column("ended_at", sa.Text, nullable=False),
    sa.Column("output", sa.Text, nullable=False),  # digest; "" = none
    sa.Index("gate_tests_node", "node", "id"),
)

gate_results = sa.Table(  # one row per part and metric of these
    "gate_results",
    metadata,
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),  # id in gate_tests
    sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("part", sa.Text, primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

gate_outputs = sa.Table(  # what tools printed: once, however many tests printed the same
    "gate_outputs",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),  # SHA-256 of the text
    sa.Column("content", sa.LargeBinary, nullable=False),  # the text, compressed by zlib
)

drift = sa.Table(  # one row per episode: open until `ended_at`
    "drift",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("desired", sa.Text, nullable=False),
    sa.Column("observed", sa.Text, nullable=False),
    sa.Column("first_seen", sa.Text, nullable=False),
    sa.Column("last_seen", sa.Text, nullable=False),
    sa.Column("ended_at", sa.Text),
    sa.Index("drift_node", "node", "ended_at"),
    sa.Index("drift_ended", "ended_at"),
)

status_intervals = sa.Table(  # one row per interval in which a node's status did not change: open until `until`
    "spells",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("fleet", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("out_of_service", sa.Integer),  # NULL: unknown
    sa.Column("code", sa.Text, nullable=False),  # of what blocks or holds it
    sa.Column("why", sa.Text, nullable=False),  # as it began
    sa.Column("since", sa.Text, nullable=False),
    sa.Column("seen", sa.Text, nullable=False),  # or later: see coverage
    sa.Column("until", sa.Text),
    sa.Index("spells_node", "fleet", "node", "since"),
    sa.Index("spells_until", "fleet", "until"),
)
sa.Index(
    "spells_open",
    status_intervals.c.fleet,
    status_intervals.c.node,
    unique=True,
    sqlite_where=status_intervals.c.until.is_(None),
    postgresql_where=status_intervals.c.until.is_(None),
)

coverage = sa.Table(  # passes over a whole fleet without a gap between them
    "watches",
    metadata,
    sa.Column("fleet", sa.Text, primary_key=True),
    sa.Column("since", sa.Text, nullable=False),
    sa.Column("seen", sa.Text, nullable=False),
)

holds = sa.Table(
    "holds",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("subject", sa.Text, nullable=False, index=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("since", sa.Text, nullable=False),
    sa.Column("until", sa.Text),
    sa.Column("released_at", sa.Text),
    sa.Column("released_by", sa.Text),
    sa.Column("position", sa.Text, nullable=False, server_default=""),  # in the spec; "" = set by a command
)

rollouts = sa.Table(  # append-only; the newest of a pool counts
    "rollouts",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("pool", sa.Text, nullable=False, index=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("document", sa.Text, nullable=False),  # JSON: values, before, members
    sa.Column("rollback", sa.Integer, nullable=False),
    sa.Column("started_at", sa.Text, nullable=False),
    sa.Column("commit_id", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("fleet", sa.Text, nullable=False, server_default=""),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),  # "" = dropped
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("expires_at", sa.Text, nullable=False),
    sa.Column("since", sa.Text, nullable=False),
)

install_attempts = sa.Table(
    "install_attempts",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),  # of the token
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("token", sa.Text, nullable=False),  # "" = withdrawn
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("network", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),  # JSON: what the installer reported last
    sa.Column("host_key", sa.Text, nullable=False),
    sa.Column("certificate", sa.Text, nullable=False),
    sa.Column("attested_key", sa.Text, nullable=False),
    sa.Column("revoked", sa.Text, nullable=False),  # lines, for ever
    sa.Column("begun_at", sa.Text, nullable=False),
    sa.Column("closed_at", sa.Text),
    sa.Index("install_attempts_node", "node", "begun_at"),
)

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("plan", sa.Text, primary_key=True),
    sa.Column("used_at", sa.Text, nullable=False),
)

attestations = sa.Table(
    "attestations",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("endorsement", sa.Text, index=True),  # fingerprint of the endorsement key, as it was first enrolled
    sa.Column("boot_id", sa.Text),  # of the last boot that a quote proved, with what it was judged by
    sa.Column("reference", sa.Text),
    sa.Column("at", sa.Text),
    sa.Column("phase", sa.Text),
)

channels = sa.Table(  # what each channel of `notifications` was told
    "channels",
    metadata,
    sa.Column("fleet", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),  # JSON
    sa.Column("at", sa.Text, nullable=False),
)

outbox = sa.Table(  # messages that no channel has taken yet
    "outbox",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("fleet", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("thread", sa.Text, nullable=False),
    sa.Column("severity", sa.Text, nullable=False),
    sa.Column("over", sa.Integer, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("since", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),  # among the messages of that instant
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("error", sa.Text, nullable=False),  # of the last try; "" = none failed
    sa.Column("next_at", sa.Text),
    sa.Column("about", sa.Text, nullable=False, server_default="[]"),  # JSON: keys of the notices that it tells of
)

repairs = sa.Table(  # orders to exchange parts
    "repairs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("document", sa.Text, nullable=False),  # JSON of model.repairs.Repair
    sa.Column("since", sa.Text, nullable=False),
    sa.Column("changed_at", sa.Text, nullable=False),
    sa.Index("repairs_node", "node", "id"),
)

tickets = sa.Table(  # what trackers of `tickets` opened
    "tickets",
    metadata,
    sa.Column("fleet", sa.Text, primary_key=True),
    sa.Column("tracker", sa.Text, primary_key=True),
    sa.Column("thread", sa.Text, primary_key=True),  # of the messages about it; in the ticket as its marker
    sa.Column(
        "number", sa.Text, nullable=False
    ),  # as the tracker calls it; "" = its creation began, and may have failed
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("begun_at", sa.Text, nullable=False),  # of the last try to create it
)

day_sums = sa.Table(  # what rows of days that are over add up to; see day_sums.py
    "day_sums",
    metadata,
    sa.Column("what", sa.Text, primary_key=True),
    sa.Column("fleet", sa.Text, primary_key=True),  # "" = all
    sa.Column("day", sa.Text, primary_key=True),  # UTC
    sa.Column("number", sa.Integer, nullable=False),  # of the rows that it stands for
    sa.Column("ids", sa.BigInteger, nullable=False),  # the sum of theirs
    sa.Column("rules", sa.Text, nullable=False),  # by which they were summed up
    sa.Column("data", sa.LargeBinary, nullable=False),  # JSON, compressed by zlib
)

LEDGER_ID, VERSION, FENCE = "ledger_id", "schema_version", "fencing_token"
BOOTED = "booted "  # and a boot id: when that boot of the machine began, by its wall clock
HEAD = "journal_head"  # id and digest of the journal's last row; before the first one, 0 and the ledger's id
