"""In which shape a client wants objects: the first media type of its Accept header that we have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aiohttp import web

from reconciler.lab.wire.kube_status import ApiError


@dataclass(frozen=True, slots=True)
class Shape:
    kind: Literal["", "Table", "PartialObjectMetadata"]  # "" = the objects themselves
    version: str = "v1"  # of meta.k8s.io


def shape_of(request: web.Request) -> Shape:
    """406 when there is nothing that both know: a client that insists on protobuf, say."""
    for offer in request.headers.get("Accept", "*/*").split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        if media not in ("application/json", "application/*", "*/*"):
            continue
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        match wanted.get("as", ""):
            case "":
                return Shape("")
            case "Table" if wanted.get("v") in ("v1", "v1beta1"):
                return Shape("Table", wanted["v"])
            case "PartialObjectMetadata" | "PartialObjectMetadataList" if wanted.get("v") in ("v1", "v1beta1"):
                return Shape("PartialObjectMetadata", wanted["v"])
    raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")
