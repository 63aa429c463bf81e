"""The ledger: what the reconciler remembers between runs (DESIGN 9), in SQLite or PostgreSQL.

schema    tables and migrations
engine    connections, transactions, errors in words
rows      values to cells and back
reader    node records in bulk
episodes  drift history
leases    exclusive leases with fencing tokens
store     SqlLedger, the implementation of model.ports.Ledger
"""

from reconciler.drivers.ledger.store import SqlLedger

__all__ = ["SqlLedger"]
