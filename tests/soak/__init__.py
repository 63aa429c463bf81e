"""A state machine over a small fleet, and what it must never see. `make soak` runs it for as long as asked.

spec      the fleet's spec, as people edit it
world     the lab it runs on: machines and a cluster under virtual time, a ledger, what people and hardware do
referee   stands between runs and the lab, and looks at the truth before each write
plans     what is to be true of a plan
machine   the rules, and the order in which chance plays them
"""
