"""The spec: what git says about a fleet, read from files and resolved for each node.

Files become documents with positions (load), documents become resources of a kind (parse, kinds/), resources are
checked against each other, and a valid spec is resolved into model.desired.Fleet (resolve). Call `load_spec` or
`check_spec`. Nothing here opens a connection or resolves a secret.
"""

from reconciler.spec.tree import SpecTree, SpecWalk
from reconciler.spec.validate import check_spec, load_spec

__all__ = ["SpecTree", "SpecWalk", "check_spec", "load_spec"]
