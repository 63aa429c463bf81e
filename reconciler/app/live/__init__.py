"""The live view of a fleet that `run` keeps: what its API and its page show, from the latest pass and the ledger."""

from reconciler.app.live.control import LiveControl
from reconciler.app.live.forge_links import web_address
from reconciler.app.live.view import LiveFleet

__all__ = ["LiveControl", "LiveFleet", "web_address"]
