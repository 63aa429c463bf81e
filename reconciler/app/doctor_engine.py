"""Check an engine for `doctor`: the scheduler answers, and each site of the spec has workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reconciler.app.doctor_programs import Finding
from reconciler.app.workspace import Workspace
from reconciler.drivers.engine.access import RENEW, EngineError, expiry
from reconciler.model.observer_port import SITE


def examine_engine(workspace: Workspace) -> Iterator[Finding]:
    """Yield whether each site of the spec has workers. Whether they read its nodes, the pass over them shows."""
    access = workspace.engine.access
    assert access is not None
    for path, until in access.lasts_until().items():
        told = expiry(str(path), until)
        left = f"{path} lasts until {until:%Y-%m-%d %H:%M} UTC"
        yield Finding("certificate of the engine", not told, told or left, RENEW if told else "")
    try:
        workers, expiring = workspace.engine.workers_by_site()
    except EngineError as error:
        yield Finding("reach engine", False, str(error), "start the scheduler, or mend --engine and --engine-tls")
        return
    for told in expiring:
        if told not in access.expiring():
            yield Finding("certificate of the engine", False, told, RENEW)
    names, _ = workspace.selection
    sites = Counter(workspace.fleet.nodes[name].domains.get(SITE, "") for name in names)
    for site, nodes in sorted(sites.items()):
        if not site:
            detail = f"{nodes} nodes are of no site, and no worker reads them"
            yield Finding("reach engine", False, detail, f"give them domains.{SITE} in the spec")
        elif own := workers.get(site):
            yield Finding("reach engine", True, f"site {site}: {nodes} nodes, workers {', '.join(own)}")
        else:
            remedy = f"start there: reconciler worker --site {site} --scheduler {access.url}"
            yield Finding("reach engine", False, f"site {site}: {nodes} nodes, and no worker", remedy)
