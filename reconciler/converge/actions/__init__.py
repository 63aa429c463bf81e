"""Carry out the actions: one `@action` function per `ActionSpec` of planner/node/actions.py, of the same name.

Each follows one template: check whether there is anything to do, do it, wait, verify by an independent read (HTTP 200
proves nothing). Each is re-entrant: a second call after a crash continues the work or finds it done.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from reconciler.converge.actions.context import FUNCTIONS

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")  # registers its `@action` functions

__all__ = ["FUNCTIONS"]
