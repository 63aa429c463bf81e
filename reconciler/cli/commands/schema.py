"""reconciler schema"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.terminal import say, show
from reconciler.model.errors import UsageError, did_you_mean
from reconciler.spec.schema import all_schemas, render_schema, write_schemas


@click.command()
@click.argument("name", required=False)
@click.option(
    "--write",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write all schemas to this directory.",
)
def schema(name: str | None, directory: Path | None) -> None:
    """Print the JSON Schema NAME. Without NAME, list the schemas, or write them all."""
    if directory is not None:
        for path in write_schemas(directory):
            say(path)
        return
    schemas = {file.removesuffix(".json"): document for file, document in all_schemas().items()}
    if name is None:
        say(*schemas)
        return
    if name not in schemas:
        raise UsageError(f"no schema {name!r}; {did_you_mean(name, schemas) or 'there are ' + ', '.join(schemas)}")
    show(render_schema(schemas[name]), "json")
