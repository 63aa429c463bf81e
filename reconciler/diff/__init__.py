"""Desired against observed, left-scoped: only what the spec mentions is compared.

facts       what the spec mentions, and how to read it out of an observation
readings    reading: one value, or all of a table at once
gpus        what the GPUs of a node have in common
normalise   one form per kind of value, so that spelling is not drift
ignore      ignore rules, compiled once and used alike in drift, plan and apply
structure   which parts of a list, mapping or set differ, and the words for it
compare     the difference of one node (DeepDiff behind all of the above), classified three ways

Everything here is pure.
"""
