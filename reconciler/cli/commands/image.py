"""reconciler image"""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.app.image_build import BuildRequest, SignRequest, build, digest, entry, inspect, sign
from reconciler.cli.groups import Group
from reconciler.cli.terminal import say, show
from reconciler.render.golden_image import render_entry
from reconciler.render.image import render_inspection

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group(cls=Group)
def image() -> None:
    """Build, sign and inspect images of nodes."""


@image.command("build")
@click.argument("definition", type=_FILE)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Write the image to this directory."
)
@click.option("--key", type=_FILE, help="Key (PEM) that signs boot loader and UKI for Secure Boot.")
@click.option("--cert", "certificate", type=_FILE, help="Certificate (PEM) of this key, which firmware has.")
def build_command(definition: Path, out: Path, key: Path | None, certificate: Path | None) -> None:
    """Build the image of a DEFINITION and print its GoldenImage, still without a signature. Needs Debian, and root."""
    made, inspection = build(BuildRequest(definition, out, key, certificate), lambda step: say(step, err=True))
    say(f"{made}: {inspection.file.size / 1e6:,.0f} MB", err=True)
    show(render_entry(entry(made.name, inspection)), "yaml")


@image.command("sign")
@click.argument("file", type=_FILE)
@click.option("--key", type=_FILE, required=True, help="Secret key of minisign. It asks for the key's password.")
@click.option("--key-name", default="release", show_default=True, help="Name of the public key in the secrets file.")
@click.option("--name", required=True, help="Name of the image.")
@click.option("--version", required=True, help="Version of the image.")
def sign_command(file: Path, key: Path, key_name: str, name: str, version: str) -> None:
    """Sign the image FILE as one version of an image, into FILE.minisig, and print its GoldenImage."""
    show(render_entry(sign(SignRequest(file, key, key_name, name, version))), "yaml")


@image.command("inspect")
@click.argument("source", metavar="FILE|URL")
def inspect_command(source: str) -> None:
    """Show what is in an image, and what a machine that boots it will measure. A URL is http, https or oci."""
    found = inspect(source)
    show(render_inspection(found) + "\n" + render_entry(entry(source.rpartition("/")[2], found)))


@image.command("digest")
@click.argument("file", type=_FILE)
def digest_command(file: Path) -> None:
    """Print the digest of an EFI program, as `measurements` list it: its SHA-256 by Authenticode, signed or not."""
    show(digest(file))
