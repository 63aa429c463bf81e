"""The fleet of a kubeconfig's context, which the kubectl plugin works with.

    contexts:
      prod:
        spec: /srv/fleets/prod/fleet-spec
        ledger: postgresql://reconciler@db/prod
        server: https://10.0.0.10:6443
        ca: 9f86d081...

A context names a cluster and a user, and no fleet; who is to be asked for which is said in this file, once.
Names repeat (K3s calls each context `default`), so that a place may say which API server it means.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from reconciler.drivers.programs import ask
from reconciler.model.errors import UsageError, did_you_mean
from reconciler.strict_yaml.models import Model, Text
from reconciler.strict_yaml.read import InvalidFile, read_model


class FleetPlace(Model):
    """One fleet: its spec, and its ledger and a lab's endpoints where these are not the usual ones."""

    spec: Text = Field(description="Directory of the spec.")
    ledger: Text | None = Field(default=None, description="File or URL of the ledger. Absent: that of the spec.")
    endpoints: Text | None = Field(default=None, description="endpoints.json of a lab.")
    server: Text | None = Field(default=None, description="URL of the API server, as the kubeconfig has it.")
    ca: Text | None = Field(default=None, description="SHA-256 of the CA's PEM in the kubeconfig. Absent: any.")


class ContextsFile(Model):
    """The fleets by context of the kubeconfig."""

    contexts: Mapping[Text, FleetPlace] = Field(description="By the name of the context.")


def contexts_path() -> Path:
    """Return RECONCILER_CONTEXTS, or contexts.yaml in the user's configuration directory."""
    if named := os.environ.get("RECONCILER_CONTEXTS"):
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "reconciler" / "contexts.yaml"


def place_of(context: str, kubeconfig: str) -> FleetPlace:
    """Return the fleet of a context; "" = the current one of the kubeconfig, "" = the usual one. Raise UsageError."""
    name, path = context or _current(kubeconfig), contexts_path()
    try:
        known = read_model(ContextsFile, path).contexts
    except InvalidFile as error:
        raise UsageError(f"{error}: it says which fleet each context stands for (docs/how-to/kubectl.md)") from None
    if name not in known:
        hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
        raise UsageError(f"{path}: contexts has no {name!r}; {hint}")
    return known[name]


def other_cluster(place: FleetPlace, context: str, kubeconfig: str) -> str:
    """Return why the kubeconfig's context is of another cluster than the place's; "" = it is the one, or none is said.

    Raise UsageError where the kubeconfig can't be read.
    """
    if place.server is None and place.ca is None:
        return ""
    words = [*(("--kubeconfig", kubeconfig) if kubeconfig else ()), *(("--context", context) if context else ())]
    found, said = ask("kubectl", *words, "config", "view", "--minify", "--flatten", "--raw", "-o", "json")
    try:
        cluster = json.loads(said if found else "")["clusters"][0]["cluster"]
        server = cluster["server"]
        pem = base64.b64decode(cluster.get("certificate-authority-data") or "")
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error):
        raise UsageError("kubectl does not say which cluster the context is of: see `kubectl config view`") from None
    if place.server is not None and server != place.server:
        return f"the kubeconfig's context is of {server}, and {contexts_path()} says {place.server}"
    digest = hashlib.sha256(pem).hexdigest()
    if place.ca is not None and digest != place.ca:
        return f"the kubeconfig's CA has SHA-256 {digest}, and {contexts_path()} says {place.ca}"
    return ""


def _current(kubeconfig: str) -> str:
    where: Sequence[str] = ("--kubeconfig", kubeconfig) if kubeconfig else ()
    found, said = ask("kubectl", *where, "config", "current-context")
    if not found:
        raise UsageError(f"kubectl names no current context: {said or 'it is not on the PATH'}; give --context NAME")
    return said
