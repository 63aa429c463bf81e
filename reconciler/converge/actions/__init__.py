"""The actions, carried out: one function per `ActionSpec` of planner/node/actions.py, under the same name.

Each follows one template: check whether it is so already, do, wait, verify by an independent read (HTTP 200 proves
nothing). Each is re-entrant: a second call after a crash continues or finds nothing to do.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from reconciler.converge.actions.context import FUNCTIONS

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")  # whose `@action` functions enter FUNCTIONS

__all__ = ["FUNCTIONS"]
