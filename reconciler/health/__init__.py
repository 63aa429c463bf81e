"""Signals of ill health, what they mean, and which rung of the ladder is next.

xids      the catalogue of XID and SXid codes
table     signal -> what it leads to: isolation, repair or a report
signals   observation -> signals
ladder    signals and past attempts -> the next rung
"""
