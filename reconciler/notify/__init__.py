"""Decide what people are told: pure functions from the findings of a pass to messages.

found     what there is to tell of a pass: notices that hold, that ended, or that can't be judged
state     what a channel was told already, as the ledger keeps it
decide    the messages that a channel gets now: one per notice, few, and none twice
words     their texts
"""
