"""The ledger: what the reconciler remembers between runs (DESIGN 9), in SQLite or PostgreSQL.

store       SqlLedger: all roles of model.ledger_ports, each implemented by one of the next classes
nodes       what is known about nodes; reader reads their records in bulk
episodes    drift
status_intervals  the status of nodes over time
results     what gates measured, and what their tools printed
searches    what searches of the fabric found
attempts, holds, rollouts, leases, runs; durations of attempts
node_history  the journal as people read it; period reads what reports need

base        what the roles share
schema      tables
migrations  from one version of the schema to another; migrating does it for a person, with a backup
live_leases  what forbids a migration
engine      connections, transactions, error messages
cache       what was read, while it is up to date; changes lists who wrote to it, on PostgreSQL
rows, writing  cells and rows
chain       the journal, each row bound to the one before it; audit verifies it
anchors     what the chain goes on from where rows were pruned; pruning prunes, and retained says what stays
lease_time  the clock that leases go by
"""

from reconciler.drivers.ledger.audit import Audit
from reconciler.drivers.ledger.migrating import LedgerMigrator, MigrationStep, Order, Outlook, refusal
from reconciler.drivers.ledger.migrations import SCHEMA_VERSION
from reconciler.drivers.ledger.store import SqlLedger

__all__ = ["SCHEMA_VERSION", "Audit", "LedgerMigrator", "MigrationStep", "Order", "Outlook", "SqlLedger", "refusal"]
