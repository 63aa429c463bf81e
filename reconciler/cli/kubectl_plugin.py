"""kubectl reconciler: questions about nodes, and holds, for the fleet of the kubeconfig's context.

kubectl starts the program kubectl-reconciler on the PATH for `kubectl reconciler`, and hands on all words after it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from reconciler.cli.exit_codes import ExitCode, exit_code_of
from reconciler.cli.main import main as reconciler
from reconciler.cli.terminal import say
from reconciler.model.errors import ReconcilerError, UsageError

_BY_OPTION: Final = ("get", "hold", "release")  # which take --spec; the others take SPEC as an argument
_WRITES: Final = ("hold", "release")
COMMANDS: Final = (*_BY_OPTION, "status", "explain")
_USAGE: Final = (
    "kubectl reconciler [--context NAME] [--kubeconfig FILE] COMMAND ...",
    f"COMMAND is one of {', '.join(COMMANDS)}, as of `reconciler COMMAND --help`. The fleet is that of the context, by",
    "~/.config/reconciler/contexts.yaml. What changes machines is done with `reconciler` itself.",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command on the fleet of the context, and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        words = words_of(given)
    except ReconcilerError as error:
        say(*(f"kubectl reconciler: {line}" for line in error.lines()), err=True)
        sys.exit(exit_code_of(error))
    if not words:
        say(*_USAGE)
        sys.exit(ExitCode.DONE)
    reconciler(words)


def words_of(given: Sequence[str]) -> list[str]:
    """Return the words for `reconciler`; none for a request for help. Raise UsageError."""
    from reconciler.app.kubectl_context import other_cluster, place_of

    rest, named = _without(given, ("--context", "--kubeconfig"))
    if not rest or rest[0] in ("-h", "--help"):
        return []
    command, *more = rest
    if command not in COMMANDS:
        raise UsageError(f"there is no {command!r} here: {', '.join(COMMANDS)}")
    if "--help" in more or "-h" in more:
        return [command, "--help"]
    kube = named.get("--context", ""), named.get("--kubeconfig", "")
    place = place_of(*kube)
    if why := other_cluster(place, *kube):
        if command in _WRITES:
            raise UsageError(f"{why}: nothing is changed; choose the context, or correct the file")
        say(f"kubectl reconciler: {why}: this is the fleet of that file", err=True)
    where = ["--spec", place.spec] if command in _BY_OPTION else [place.spec]
    where += ["--ledger", place.ledger] if place.ledger else []
    where += ["--endpoints", place.endpoints] if place.endpoints else []
    return [command, *more, *where]


def _without(words: Sequence[str], options: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words without kubectl's own options, and the values of these. Raise UsageError for one without."""
    rest: list[str] = []
    found: dict[str, str] = {}
    waiting = iter(words)
    for word in waiting:
        name, separator, value = word.partition("=")
        if name not in options:
            rest.append(word)
            continue
        found[name] = value if separator else next(waiting, "")
        if not found[name]:
            raise UsageError(f"{name} needs a value")
    return rest, found
