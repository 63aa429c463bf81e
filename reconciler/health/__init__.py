"""Signals of ill health, what they mean, and which rung of the ladder is next.

xids      the catalogue of XID and SXid codes
signals   observation -> signals
ladder    signals and past attempts -> the next rung
"""
