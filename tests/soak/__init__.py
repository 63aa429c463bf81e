"""A state machine test of a small fleet under random events. `make soak` runs it for a given time.

spec      the fleet's spec, with the edits that users make
world     the lab it runs on: machines and a cluster under virtual time, a ledger, what people and hardware do
invariant_checker   checks the lab before each write of a run
plans     invariants of plans
machine   the rules, which run in random order
"""
