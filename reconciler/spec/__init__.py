"""The spec: files -> documents with positions (load) -> resources of a kind (parse, kinds/) -> checked -> resolved.

`load_spec` and `check_spec` are the way in. Nothing here opens a connection or resolves a secret.
"""

from reconciler.spec.validate import check_spec, load_spec

__all__ = ["check_spec", "load_spec"]
