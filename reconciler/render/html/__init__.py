"""The report as one HTML page that needs nothing else: no server, no network, no other file.

material    what it is made of
redacted    without names and addresses of machines
nodes       each node in full, as tables that the scripts put into words when somebody asks
evidence    of its certificate; waits: what holds it back; interned: what nodes share stands there once
summary     the fleet as a whole, in the words of the other renders
charts      rollouts, drift over time and times to recover, as rectangles
page        the template, its style and its scripts made one text

`assets/` has the template, and style and scripts in the order of their names. The page is passed on and opened on
anybody's machine, so what a node says is text and nothing else, in Jinja2 (autoescape) and in the scripts
(`textContent`) alike, and its policy forbids every request and every script but ours.
"""

from reconciler.render.html.material import Material
from reconciler.render.html.page import page

__all__ = ["Material", "page"]
