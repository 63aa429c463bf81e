"""The report as one HTML page that needs nothing else: no server, no network, no other file.

material    the documents and records that the page shows
nodes       the details of each node, as tables that the scripts turn into words on demand
evidence    the certificate of a node; waits: what holds it back; interned: tables of values that nodes share
summary     the fleet as a whole, in the words of the other renderers
past        the figures of the period behind
charts      rollouts, drift over time and times to recover, as rectangles
page        what the page leaves out, and the template with its style and scripts as one text
live        the live page of `run`, which is another one: it has the style of this one, and asks the API

`assets/` has the template, and style and scripts in the order of their names. The page is passed on and opened on
anybody's machine, so what a node says is text and nothing else, in Jinja2 (autoescape) and in the scripts
(`textContent`) alike, and its policy forbids every request and every script but ours.
"""

from reconciler.render.html.material import Material
from reconciler.render.html.page import page

__all__ = ["Material", "page"]
