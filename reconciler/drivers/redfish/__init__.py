"""One node's BMC over Redfish.

    port        one service: threads, deadlines, cancelling
    bmc         RedfishBmc, the port of a node's BMC
    pdu         RedfishPdu, the port of rack PDUs
    bmc_gate    access to one BMC: one call at a time, gaps between requests, a probe of its port
    breaker     when a silent BMC is called again
    login_guard which secrets were refused, for the whole process
    hot, inventory, chassis | power, boot, staging, media, firmware    the requests of each call
    inventory_budget  limits of an inventory
    tree        URIs and capabilities of one BMC, learned once
    session     login, one session, ETags      wire   one request      transport   sockets, TLS, limits
    event_posts, event_listener, subscription  events that BMCs post
    event_stream  events that BMCs push, over aiohttp: a stream that lasts for days needs no thread
    failures    error answers as kinds of DriverError
    system, bios, tasks, devices, parts, sensors, events   decode documents; pure
    fields      lenient readers                quirks  differences between makes: quirks.yaml

sushy speaks HTTP (Connector) and logs in (SessionAuth, BasicAuth). Its resource classes are not used. Per class, as of
5.14, loaded with the 109 sample documents that have one (1 raised, 3 lost a value):

    System       no BootOrder, BootOptions or Oem PostState; `reset_system` adds only a check to our one POST; one
                 object loads lazily from properties, so that the GETs of a pass can't be counted (hot read: six)
    Manager      as System; no LogServices
    Chassis      no Sensors, PowerSubsystem, ThermalSubsystem, LeakDetection; `Memory` has no class either
    UpdateService  raises without Actions, as 1 of 8 samples is (a push-only service); `simple_update` always sends a
                 TransferProtocol and tries no other form
    TaskService  `Task.task_state` is None for states that its enum lacks: 3 of 12 samples (Failed, Scheduled, one
                 made up); a task that Failed would never be seen to end (A6). No Dell jobs
    VirtualMedia `insert_media` chooses its next payload by the error's text, and raises where that is another (E3);
                 `eject_media` posts a second time after a 400, where Inserted may tell that it is done (E2)
    Bios         `set_attributes` takes its ETag from @Redfish.Settings, where only 1 of 5 real makes has one, and sends
                 no If-Match otherwise (A1); foreign pending settings are overwritten (G3)
    SecureBoot   `set_enabled` is one PATCH of the resource, never of its settings object, and after a 412 tries other
                 forms of the same ETag without reading the resource again (A1)
    SessionService  `create_session` goes through the Connector's retries, which lock accounts (B3)
    EventService no ServerSentEventUri, and nothing that reads a stream; no EventTypesForSubscription, and
                 `Status` of an EventDestination, by which a BMC says that it posts no more, is not read

A missing value costs one field and keeps its reason here (pitfall A10), where a required field that is missing costs a
whole sushy resource.
"""

from __future__ import annotations

import logging

from reconciler.drivers.redfish.bmc import RedfishBmc
from reconciler.drivers.redfish.bmc_gate import BmcRegistry
from reconciler.drivers.redfish.pdu import RedfishPdu

__all__ = ["BmcRegistry", "RedfishBmc", "RedfishPdu"]

# What they would print is in the errors that we raise; without a handler Python prints warnings on stderr.
for _name in ("sushy", "urllib3"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
