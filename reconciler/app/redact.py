"""--redact: documents that may be kept where others read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click

from reconciler.app.crashes import CRASHES

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.model.observed import Observation
    from reconciler.model.plan import Plan
    from reconciler.model.ports import Recollection
    from reconciler.model.report import ApplyOutcome, DriftReport

    D = TypeVar("D", Plan, DriftReport, ApplyOutcome)


def _quietly(_ctx: click.Context, _option: click.Parameter, redact: bool) -> bool:
    CRASHES.terse = redact
    return redact


redact_option = click.option(
    "--redact", is_flag=True, envvar="RECONCILER_REDACT", callback=_quietly,
    help="Leave serials, names and addresses of machines out of what is printed and written.",
)  # fmt: skip


def redacted(document: D, session: Session, observation: Observation, memory: Recollection) -> D:
    from reconciler.render.redact import names_of, redact

    return redact(document, names_of(session.watched, observation, memory.nodes(list(observation.nodes))))
