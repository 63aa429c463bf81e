"""Tell what is sent to BMCs, hosts and clusters, a line for each request: `-v` what may change something, `-vv` all.

Neither bodies, standard input nor headers are told: passwords, tokens and keys are in them. Patches of nodes and pods,
which kubectl takes as arguments, have none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

LOG: Final = logging.getLogger("reconciler.requests")
LOG.propagate = False  # to nobody but those who ask for it


@dataclass(slots=True)
class Told:
    """A request under way. `answer`: what came of it, in a word or a status; "" = nothing, as far as is known."""

    answer: str = ""


@contextmanager
def telling(where: str, what: str, *, reads: bool) -> Iterator[Told]:
    """Log a request when it has ended. `where`: address; `what`: method and path, or a command."""
    told = Told()
    level = logging.DEBUG if reads else logging.INFO
    if not LOG.isEnabledFor(level):
        yield told
        return
    began = time.monotonic()
    try:
        yield told
    except BaseException as error:
        told.answer = told.answer or type(error).__name__
        raise
    finally:
        LOG.log(level, "%s  %s: %s (%.2f s)", where, what, told.answer or "done", time.monotonic() - began)
