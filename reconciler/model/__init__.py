"""Frozen values of the domain, and the Protocols (`ports`) that the async shell talks through.

Vocabulary, the same in code, YAML, JSON and reports:

fleet, pool, node    a fleet has pools, a pool has nodes
failure domain       any label that nodes share and may lose together: rack, NVLink domain, PDU, switch
spec                 what git says; `Desired` is the spec resolved for one node
observed             what was read, with its source and its age
applied              what a node was last converged to (a ledger row per path)
concern              one aspect of a node, see `vocab.Concern`
drift                a difference between desired and observed, classified
condition            what the planner reasons over: true, false or unknown
action               one row of the catalogue; disruption says how much it hurts
quiesced             nothing evictable runs on the node any more
gate, certificate    acceptance tests, and the proof that they passed
hold                 a ledger row that forbids acting on a node
lab                  the embedded fleet

Everything in this package is a value or a Protocol: no I/O, no clock, no randomness.
"""
