"""The spec: files -> documents with positions (load) -> kinds (kinds/) -> checked (validate) -> resolved (resolve).

`load_spec` and `check_spec` are the way in. Nothing here opens a connection or resolves a secret.
"""
