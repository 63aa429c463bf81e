"""One node's BMC over Redfish.

    bmc         RedfishBmc, the port: threads, deadlines, cancelling
    door        the way to one BMC: one call at a time, rests between them, whether anybody is there
    breaker     when a silent one is asked again   logins      which secrets were refused: for the whole process
    hot, inventory | power, boot, staging, media, firmware    what each call sends
    tree        URIs and capabilities of one BMC, learned once
    session     login, one session, ETags      wire   one request      transport   sockets, TLS, limits
    failures    what an error means
    system, bios, tasks, devices               pure: documents -> parts of snapshots
    fields      lenient readers                quirks       how makes differ: quirks.yaml

Reads take raw JSON through sushy's Connector, not sushy's resource objects: those raise for a whole resource when one
required field is missing, load lazily from properties (so nobody can count the GETs of a pass), and drop what their
enums do not know. We keep a field's reason instead (pitfall A10). sushy still speaks HTTP and holds the session.
"""

from __future__ import annotations

import logging

from reconciler.drivers.redfish.bmc import RedfishBmc
from reconciler.drivers.redfish.bmc_gate import BmcRegistry

__all__ = ["BmcRegistry", "RedfishBmc"]

# What they would print is in the errors that we raise; without a handler Python prints warnings on stderr.
for _name in ("sushy", "urllib3"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
