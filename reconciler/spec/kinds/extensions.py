"""Packages of extensions that a fleet uses: nothing else that is installed changes what is done."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reconciler.strict_yaml.models import Matching, Model

Package = Annotated[
    str, Matching(r"[a-z0-9]+(-[a-z0-9]+)*", "the normalised name of a Python package, like acme-fleet")
]
ExactVersion = Annotated[
    str, Matching(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}", "an exact version in quotes, like '1.2.0'")
]
EntryName = Annotated[str, Matching(r"[a-z][a-z0-9_]{0,62}", "the name of an extension, like acme_pager")]


class Extension(Model):
    """A package of extensions, with its exact version. All facts and signals that it offers are used."""

    package: Package = Field(description="Name of the Python package, as pip normalises it. It must be installed.")
    version: ExactVersion = Field(description="Its exact version. With another one installed, nothing is begun.")
