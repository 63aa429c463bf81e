"""An image in an OCI registry: oci://host/repository@sha256:..., fetched as the blob that the publisher signed.

The document's sha256 is the digest of the image's file, and a registry serves each blob by its digest. So the manifest
is not asked for: whatever it says, only this blob would do.
"""

from __future__ import annotations

import json
import re
from email.message import Message
from http.client import HTTPException
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import OpenerDirector, Request

from reconciler.installer.client import reason
from reconciler.installer.documents import Image
from reconciler.installer.machine import Failed

_REPOSITORY = re.compile(r"[a-z0-9]+([._/-]+[a-z0-9]+)*")


class Registry:
    """Finds a blob, and gets the token that registries ask even strangers for."""

    def __init__(self, web: OpenerDirector, timeout: float) -> None:
        self._web, self._timeout = web, timeout
        self._token = ""

    def locate(self, image: Image) -> str:
        """Return the URL of the image's blob."""
        parts = urlsplit(image.url)
        repository = parts.path.lstrip("/").partition("@")[0]
        if not parts.netloc or _REPOSITORY.fullmatch(repository) is None:
            raise Failed(f"{image.url} is not oci://host/repository@sha256:digest")
        return f"https://{parts.netloc}/v2/{quote(repository)}/blobs/sha256:{image.sha256}"

    def sign_in(self, request: Request) -> None:
        if self._token:  # not for the host that a registry redirects to
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")

    def answer(self, headers: Message) -> bool:
        """Get the token that a challenge asks for. Return False when a second one is asked: it would not help."""
        told = dict(re.findall(r'(\w+)="([^"]*)"', headers.get("WWW-Authenticate", "")))
        realm = told.get("realm", "")
        if self._token or urlsplit(realm).scheme != "https":
            return False
        query = urlencode({name: told[name] for name in ("service", "scope") if name in told})
        try:
            with self._web.open(f"{realm}?{query}", timeout=self._timeout) as answer:
                document = json.loads(answer.read(1 << 20))
            self._token = str(document.get("token") or document.get("access_token") or "")
        except (OSError, HTTPException, ValueError, AttributeError) as error:
            raise Failed(f"the registry's token can't be had from {realm}: {reason(error)}") from None
        return bool(self._token)
