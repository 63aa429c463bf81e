"""The spec: files -> documents with positions (load) -> resources of a kind (parse, kinds/) -> checked -> resolved.

`load_spec` and `check_spec` are the way in. Nothing here opens a connection or resolves a secret.
"""

from reconciler.spec.tree import SpecTree, SpecWalk
from reconciler.spec.validate import check_spec, load_spec

__all__ = ["SpecTree", "SpecWalk", "check_spec", "load_spec"]
