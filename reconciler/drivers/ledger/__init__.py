"""The ledger: what the reconciler remembers between runs (DESIGN 9), in SQLite or PostgreSQL.

schema      tables
migrations  from an older ledger to this one
engine      connections, transactions, errors in words
rows        values to cells and back
chain       the journal, each row bound to the one before it; verification
reader      node records in bulk
memory      what was read, while it is still true
episodes    drift history
spells      how nodes stood, and since when
chronicle   what happened in a period
story       the journal as people read it
attempts    what was begun and has not ended
rollouts    changes as they began, and how long actions took
leases      exclusive leases with fencing tokens
lease_time  the clock that they go by
leasing     the part of SqlLedger that deals in them
store       SqlLedger, the implementation of model.ports.Ledger
"""

from reconciler.drivers.ledger.chain import Audit
from reconciler.drivers.ledger.store import SqlLedger

__all__ = ["Audit", "SqlLedger"]
