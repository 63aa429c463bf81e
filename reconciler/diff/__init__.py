"""Compare desired with observed values. Only what the spec mentions is compared.

facts       the managed values of a profile, and how each is read from an observation
readings    read one value of an observation, or all values of a table at once
gpus        what the GPUs of a node have in common
software    versions of the software of an image, in part or with a name
normalise   one form for each kind of value, so that a different notation is not drift
ignore      ignore rules, compiled once for drift, plan and apply
structure   which parts of a list, mapping or set differ (DeepDiff), and the words for it
compare     the drift of one node, classified three ways

Everything here is pure.
"""
