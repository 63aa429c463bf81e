"""The `reference build` use case: what certified nodes measured, as documents of the spec."""

from __future__ import annotations

import re
from pathlib import Path

from reconciler.app.documents import write_file
from reconciler.app.workspace import Workspace
from reconciler.gate.cohort import references
from reconciler.gate.results import peers_key, with_searched
from reconciler.model.documents import dump
from reconciler.model.reference import Reference


def build_references(workspace: Workspace, out: Path) -> list[tuple[Path, Reference]]:
    """Write a reference document for each group of peers into the directory, and return what was written.

    The source is the newest certificate of each node of the fleet, and for tests that it lacks, the newest search of
    the fabric that the node took part in. A file whose text would be the same is not written.
    """
    fleet = workspace.fleet
    with workspace.present_ledger() as ledger:
        workspace.tell_missing(ledger)
        records = ledger.nodes(list(fleet.nodes))
        certified = [
            (desired, with_searched(certificate, desired, ledger.last_searched(name)))
            for name, desired in fleet.nodes.items()
            if (certificate := records[name].certificate) is not None
        ]
    made = [(out / file_name(reference), reference) for reference in references(certified)]
    out.mkdir(parents=True, exist_ok=True)
    for path, reference in made:
        text = dump(reference)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_file(path, text)
    return made


def file_name(reference: Reference) -> str:
    """Return a name that says what the reference is of, and differs for each."""
    said = "-".join((reference.test, reference.hardware, reference.tool_version)).lower()
    key = peers_key(
        reference.hardware, reference.image, reference.test, reference.tool, reference.tool_version, reference.args
    )
    return f"{re.sub(r'[^a-z0-9.]+', '-', said).strip('-.')[:80]}-{key[:8]}.json"
