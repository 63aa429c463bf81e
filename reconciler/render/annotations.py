"""Problems of a spec as the reviewers of a change see them: beside the line, on GitHub and on GitLab."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

from reconciler.model.errors import Diagnostic
from reconciler.model.printable import visible

_SEVERITIES = {"error": "major", "warning": "minor"}


def github(found: Iterable[Diagnostic]) -> Iterator[str]:
    """Yield a workflow command for each problem, such as `::error file=a.yaml,line=5,col=3::...`.

    GitHub, "Workflow commands for GitHub Actions": a command is one line, with %, line breaks and, in properties, : and
    the comma as percent codes. A file is named from the top of the checkout, where the job runs.
    """
    for one in found:
        at = {"file": one.at.file, "line": str(one.at.line), "col": str(one.at.column)}
        properties = ",".join(f"{key}={_property(value)}" for key, value in at.items())
        yield f"::{one.severity} {properties}::{_data(_words(one))}"


def gitlab(found: Iterable[Diagnostic]) -> str:
    """Return a code quality report, for `artifacts: reports: codequality` (GitLab, "Code Quality report format")."""
    return json.dumps(
        [
            {
                "description": _words(one),
                "check_name": "reconciler validate",
                "fingerprint": hashlib.sha256(str(one).encode()).hexdigest(),
                "severity": _SEVERITIES[one.severity],
                "location": {"path": one.at.file, "lines": {"begin": one.at.line}},
            }
            for one in found
        ],
        indent=1,
    )


def _words(one: Diagnostic) -> str:
    where = f"{one.path}: " if one.path else ""
    return visible(where + one.problem + (f" ({one.hint})" if one.hint else ""))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
