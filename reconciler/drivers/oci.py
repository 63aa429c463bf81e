"""Find the file of an image in a registry that speaks OCI's distribution protocol, and fetch images from anywhere.

An image is an artifact whose manifest has one layer: the file. The manifest is named by its digest, and names the
layer by its own, so a registry can't give another one. https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.json_text import parse_json

_REFERENCE: Final = re.compile(r"oci://([^\s/@?#]+)/([a-z0-9]+(?:[._/-]+[a-z0-9]+)*)@sha256:([0-9a-f]{64})")
_MANIFESTS: Final = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')
_MAX_MANIFEST: Final = 4 << 20
_CHUNK: Final = 1 << 20
_OK, _UNAUTHORISED, _FORBIDDEN = 200, 401, 403
_PATIENCE: Final = ClientTimeout(total=None, connect=10, sock_read=60)


@dataclass(frozen=True, slots=True)
class OciBlob:
    """The file of an image. `headers`: what the registry wants to see with the request, such as a token for it."""

    url: str
    size: int
    digest: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


async def resolve_oci(url: str) -> OciBlob:
    """Return where the file of oci://registry/repository@sha256:... is. Raise UsageError or DriverError."""
    found = _REFERENCE.fullmatch(url)
    if found is None:
        raise UsageError(f"{url!r} is not oci://registry/repository@sha256:<digest>")
    registry, repository, digest = found.groups()
    base = f"{_scheme(registry)}://{registry}/v2/{repository}"
    async with ClientSession(timeout=_PATIENCE) as session:
        body, headers = await _manifest(session, f"{base}/manifests/sha256:{digest}")
    if hashlib.sha256(body).hexdigest() != digest:
        raise DriverError(Failure.REJECTED, f"{registry} gives another manifest than the one of this digest")
    layer = _only_layer(body)
    return OciBlob(f"{base}/blobs/sha256:{layer.digest}", layer.size, layer.digest, headers)


def _scheme(registry: str) -> str:
    """Return http for this machine's own registry, which the lab and tests run, and https for any other."""
    host = urlsplit(f"//{registry}").hostname or ""
    try:
        return "http" if ip_address(host).is_loopback else "https"
    except ValueError:
        return "http" if host == "localhost" else "https"


async def _manifest(session: ClientSession, url: str) -> tuple[bytes, dict[str, str]]:
    """Return the manifest, and the headers that the registry gave it for."""
    accepted = {"Accept": _MANIFESTS}
    async with _answer(session, url, accepted) as answer:
        if answer.status != _UNAUTHORISED:
            return await _body(answer, url), {}
        challenge = answer.headers.get("WWW-Authenticate", "")
    headers = {"Authorization": f"Bearer {await _token(session, challenge, url)}"}
    async with _answer(session, url, {**headers, **accepted}) as answer:
        if answer.status == _UNAUTHORISED:
            raise DriverError(Failure.AUTH, f"{url}: the registry does not accept its own token")
        return await _body(answer, url), headers


async def _body(answer: ClientResponse, url: str) -> bytes:
    if answer.status != _OK:
        raise DriverError(*_refusal(url, answer.status))
    body = b""
    while chunk := await answer.content.read(_MAX_MANIFEST):
        body += chunk
        if len(body) > _MAX_MANIFEST:
            raise DriverError(Failure.REJECTED, f"{url}: the manifest is longer than any of an image")
    return body


async def _token(session: ClientSession, challenge: str, url: str) -> str:
    """Return the token that registries give to anybody for what is public."""
    told = dict(_CHALLENGE.findall(challenge))
    realm = told.pop("realm", "")
    if not challenge.startswith("Bearer ") or urlsplit(realm).scheme not in ("http", "https"):
        raise DriverError(Failure.AUTH, f"{url}: the registry wants a password, and images are fetched without one")
    query = {name: told[name] for name in ("service", "scope") if name in told}
    async with _answer(session, realm, {}, query) as answer:
        if answer.status != _OK:
            raise DriverError(*_refusal(realm, answer.status))
        said = _parsed(await answer.read(), realm)
    token = said.get("token") or said.get("access_token") if isinstance(said, dict) else None
    if not isinstance(token, str):
        raise DriverError(Failure.AUTH, f"{realm} gives no token")
    return token


@dataclass(frozen=True, slots=True)
class _Layer:
    digest: str
    size: int


def _only_layer(body: bytes) -> _Layer:
    manifest = _parsed(body, "the manifest")
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    if not isinstance(layers, list) or len(layers) != 1:
        many = f"{len(layers)} layers" if isinstance(layers, list) else "no layers: an index, perhaps"
        raise DriverError(Failure.REJECTED, f"an image is an artifact of one layer, and this has {many}")
    digest, size = (layers[0].get(key) if isinstance(layers[0], dict) else None for key in ("digest", "size"))
    if not isinstance(digest, str) or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest) or not isinstance(size, int):
        raise DriverError(Failure.REJECTED, "the manifest does not say digest and size of its layer")
    return _Layer(digest.removeprefix("sha256:"), size)


def _parsed(body: bytes, what: str) -> Any:
    try:
        return parse_json(body)
    except ValueError:
        raise DriverError(Failure.REJECTED, f"{what} is not JSON") from None


async def download(url: str, target: Path) -> None:
    """Fetch an image to a file. Raise DriverError when it does not come, and when a registry gives another file."""
    blob = await resolve_oci(url) if url.startswith("oci://") else None
    digest = hashlib.sha256()
    where = blob.url if blob is not None else url
    headers = blob.headers if blob is not None else {}
    async with ClientSession(timeout=_PATIENCE) as session, _answer(session, where, headers) as answer:
        if answer.status != _OK:
            raise DriverError(*_refusal(where, answer.status))
        with target.open("wb") as file:
            async for chunk in answer.content.iter_chunked(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
    if blob is not None and digest.hexdigest() != blob.digest:
        raise DriverError(Failure.REJECTED, f"{where}: the registry gives another file than the one of this digest")


@asynccontextmanager
async def _answer(
    session: ClientSession, url: str, headers: Mapping[str, str], query: Mapping[str, str] | None = None
) -> AsyncIterator[ClientResponse]:
    try:
        async with session.get(url, headers=dict(headers), params=query) as answer:
            yield answer
    except (ClientError, TimeoutError, OSError) as error:
        raise DriverError(Failure.UNREACHABLE, f"{url}: {error or type(error).__name__}") from error


def _refusal(url: str, status: int) -> tuple[Failure, str]:
    kind = Failure.AUTH if status in (_UNAUTHORISED, _FORBIDDEN) else Failure.REJECTED
    return kind, f"{url} answers {status}"
