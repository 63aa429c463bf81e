"""The lab's Kubernetes API: the part that the real kubectl, 1.20 and newer, needs to work against a ClusterTruth.

It has no scheduler or kubelet of its own (ClusterTruth simulates them), and of nodes it keeps labels, annotations,
taints and `unschedulable`. It refuses everything else with the API's own messages.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Literal

from aiohttp import web

from reconciler.lab.hardware import maintenance
from reconciler.lab.hardware.control_plane import ClusterTruth
from reconciler.lab.wire import kube_discovery as discovery
from reconciler.lab.wire import kube_protobuf
from reconciler.lab.wire import kube_status as status
from reconciler.lab.wire import kube_watch as watch
from reconciler.lab.wire.kube_events import WrittenEvents
from reconciler.lab.wire.kube_objects import EPOCH, Objects
from reconciler.lab.wire.kube_path import Target, parse
from reconciler.lab.wire.kube_store import Query, Store
from reconciler.lab.wire.kube_tables import Shape, partial, shape_of, table
from reconciler.lab.wire.kube_writes import Writes

# hang: no answer at all; lost_answer: done, but not answered; garbage: 200 and no JSON; unavailable: 503; reset: the
# connection is cut.
Fault = Literal["", "hang", "lost_answer", "garbage", "unavailable", "reset"]

_PROXY = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/:]+):\d+/proxy(?:/.*)?")
_PUBLIC = ("/version", "/healthz", "/livez", "/readyz")  # the paths that system:public-info-viewer allows to all
_WATCH_S = 1800.0
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_USER = "reconciler"
Right = tuple[str, str]  # verb and resource, with its subresource: ("create", "pods/eviction")
Json = dict[str, Any]


class KubeServer:
    """Serves one ClusterTruth over TLS to clients with `token` or a client certificate that the TLS context accepted.

    `version` is the server version that it reports; it decides which policy versions are served. `epoch` is the date
    at which the cluster's clock read 0. `fault` may be set at any time, and so may `rights`: what clients may do; None:
    everything.
    """

    def __init__(self, truth: ClusterTruth, *, token: str, version: str = "v1.31.4", epoch: datetime = EPOCH) -> None:
        self.fault: Fault = ""
        self.rights: AbstractSet[Right] | None = None
        self.metrics = ""  # the text of /metrics
        self._truth = truth
        self._token = token
        self._version = version
        minor = int(version.split(".")[1])
        self._own_resources = discovery.resources(minor)
        self._evictions = ("policy/v1", "policy/v1beta1") if minor >= 22 else ("policy/v1beta1",)
        self._aggregated = ("v2",) if minor >= 30 else ("v2beta1",) if minor >= 27 else ()
        self._objects = Objects(truth, epoch)
        self._store = Store(truth, self._objects)
        self._writes = Writes(truth, self._objects)
        self._written = WrittenEvents()
        self._runner: web.AppRunner | None = None

    @property
    def _resources(self) -> tuple[discovery.Resource, ...]:
        operators = maintenance.served(self._truth.machines, self._truth.operators)
        return self._own_resources + discovery.of_operators(operators)

    async def start(self, ssl_context: ssl.SSLContext | None, host: str = "127.0.0.1", port: int = 0) -> int:
        """Start serving and return the port. Without a TLS context it speaks HTTP, where kubectl sends no token."""
        app = web.Application(client_max_size=4 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=ssl_context)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @staticmethod
    def kubeconfig(server: str, ca_pem: str, token: str) -> str:
        """Return a kubeconfig for this server, with its token."""
        authority = base64.b64encode(ca_pem.encode()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "reconciler", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "reconciler"}}],
            "current-context": "lab",
        }
        return json.dumps(document, indent=2) + "\n"  # JSON is YAML

    # --- one request ---------------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        fault: Fault = "reset" if self._truth.down else self.fault
        if fault in ("hang", "reset"):
            await self._sever(request, wait=fault == "hang")
        if fault == "garbage":
            return web.Response(text="<html>It works!</html>", content_type="text/html")
        try:
            self._admit(request)
            response = await self._answer(request)
        except status.ApiError as error:
            response = _json(error.body(), error.code)
        if fault == "lost_answer" and request.method != "GET":
            await self._sever(request, wait=True)
        return response

    @staticmethod
    async def _sever(request: web.Request, *, wait: bool) -> None:
        if wait:
            await asyncio.Event().wait()  # until the client goes away, which cancels this
        if request.transport is not None:
            request.transport.abort()
        raise asyncio.CancelledError

    def _admit(self, request: web.Request) -> None:
        if self.fault == "unavailable":
            raise status.unavailable()
        transport, offered = request.transport, request.headers.get("Authorization")
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if certificate or offered == f"Bearer {self._token}":
            return
        if offered is not None or request.path not in _PUBLIC:  # a wrong token is refused where none would do
            raise status.unauthorized()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if (document := self._fixed(request) or self._proxied(request)) is not None:
            return document
        target = parse(request.path, self._resources)
        if target.resource.kind == "SelfSubjectAccessReview":
            return _json(self._review(await _review_of(request), target), 201)
        self._authorize(request, target)
        if request.method == "GET" and target.subresource == "":
            if target.name:
                return self._get(request, target)
            return await (self._watch if _flag(request, "watch") else self._list)(request, target)
        body = await _body(request)
        match request.method, target.resource.name, target.subresource:
            case "PATCH", "nodes", "":
                media = request.content_type
                return self._shaped(request, self._writes.patch_node(target.name, media, body, dry=_dry(request)))
            case "PUT", "nodes", "":
                return self._shaped(request, self._writes.replace_node(target.name, body, dry=_dry(request)))
            case "DELETE", "nodes", "":
                return _json(self._writes.delete_node(target.name, _options(body)))
            case "PATCH", "pods" | "deployments", "" if target.name:
                is_pod = target.resource.name == "pods"
                patch = self._writes.patch_pod if is_pod else self._writes.patch_deployment
                return self._shaped(request, patch(target.namespace or "", target.name, request.content_type, body))
            case "DELETE", "pods", "" if target.name:
                return _json(self._writes.delete_pod(target.namespace or "", target.name, _options(body)))
            case "POST", "pods", "eviction":
                done = self._writes.evict(target.namespace or "", target.name, body, self._evictions)
                return _json(done, 201)
            case "POST" | "PUT", "events", "":
                return _json(*self._written.write(request.method, target.name, _options(body)))
            case _:
                raise status.method_not_allowed()

    def _authorize(self, request: web.Request, target: Target) -> None:
        """Raise a 403 unless the client has the right. It is asked for before the object is."""
        reads = "get" if target.name else "watch" if _flag(request, "watch") else "list"
        verb = reads if request.method == "GET" else _VERBS.get(request.method, request.method.lower())
        resource = "/".join(filter(None, (target.resource.name, target.subresource)))
        self._allow(verb, resource, target.name, target.namespace)

    def _allow(self, verb: str, resource: str, name: str, namespace: str | None) -> None:
        if self.rights is not None and (verb, resource) not in self.rights:
            raise status.forbidden(verb, resource, name, namespace, _USER)

    def _proxied(self, request: web.Request) -> web.Response | None:
        """Hand a request on to the program in a pod, and its answer back: no Status, as it is not ours."""
        if (found := _PROXY.fullmatch(request.path)) is None:
            return None
        namespace, name = found.groups()
        verb = "get" if request.method == "GET" else _VERBS.get(request.method, request.method.lower())
        self._allow(verb, "pods/proxy", name, namespace)
        code = self._writes.ask_pod(namespace, name, request.method)
        return web.Response(text=f"{code}\n", status=code)

    def _review(self, review: Any, target: Target) -> Json:
        wanted = (_options(review).get("spec") or {}).get("resourceAttributes") or {}
        resource = "/".join(filter(None, (wanted.get("resource"), wanted.get("subresource"))))
        allowed = self.rights is None or (wanted.get("verb"), resource) in self.rights
        head = {"kind": target.resource.kind, "apiVersion": target.api_version}
        return head | {"spec": {"resourceAttributes": wanted}, "status": {"allowed": allowed}}

    def _fixed(self, request: web.Request) -> web.Response | None:
        """Answer requests that do not depend on the cluster: health, version, discovery."""
        if request.method != "GET":
            return None
        match request.path.strip("/").split("/"):
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["metrics"]:
                self._allow("get", "/metrics", "", None)
                return web.Response(text=self.metrics)
            case ["openapi", "v2"]:
                return web.Response(body=discovery.OPENAPI_V2, headers={"Content-Type": discovery.OPENAPI_V2_MEDIA})
            case ["version"]:
                return _json(discovery.version_info(self._version))
            case ["api" | "apis" as root]:
                if (found := self._aggregated_as(request)) is not None:
                    document = discovery.aggregated(self._resources, core=root == "api", version=found)
                    kind = f"application/json;g=apidiscovery.k8s.io;v={found};as=APIGroupDiscoveryList"
                    return _json(document, media=kind)
                core = root == "api"
                return _json(discovery.core_versions() if core else discovery.group_list(self._resources))
            case ["api", version]:
                return self._resource_list("", version)
            case ["apis", group]:
                if group not in {resource.group for resource in self._resources}:
                    raise status.no_such_path()
                return _json({"kind": "APIGroup", "apiVersion": "v1"} | discovery.group(self._resources, group))
            case ["apis", group, version]:
                return self._resource_list(group, version)
            case _:
                return None

    def _resource_list(self, group: str, version: str) -> web.Response:
        found = discovery.resource_list(self._resources, group, version)
        if not found["resources"]:
            raise status.no_such_path()
        return _json(found)

    def _aggregated_as(self, request: web.Request) -> str | None:
        accept = request.headers.get("Accept", "")
        wanted = (f"g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in self._aggregated)
        return next((version for version, text in zip(self._aggregated, wanted, strict=True) if text in accept), None)

    # --- reads ---------------------------------------------------------------------------------------------------

    def _get(self, request: web.Request, target: Target) -> web.Response:
        if target.resource.name == "events":
            return _json(self._written.get(target.name))
        return self._shaped(request, self._store.get(_query(request, target), target.name))

    async def _list(self, request: web.Request, target: Target) -> web.Response:
        page = self._store.page(
            _query(request, target), int(_number(request, "limit", 0)), request.query.get("continue", "")
        )
        shape = shape_of(request)
        if shape.kind == "Table":
            return _json(self._table(target, page.items, page.metadata, shape, request))
        if shape.kind == "PartialObjectMetadata":
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            return _json(head | {"metadata": page.metadata, "items": [partial(item) for item in page.items]})
        head = {"kind": f"{target.resource.kind}List", "apiVersion": target.api_version}
        items = [
            {key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in page.items
        ]
        return _json(head | {"metadata": page.metadata, "items": items})

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        shape = shape_of(request)
        stream = watch.events(
            self._store,
            _query(request, target),
            since=str(int(_number(request, "resourceVersion", 0))),
            timeout_s=_number(request, "timeoutSeconds", _WATCH_S),
            bookmarks=_flag(request, "allowWatchBookmarks"),
            initial=_flag(request, "sendInitialEvents"),
            head={"kind": target.resource.kind, "apiVersion": target.api_version},
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        async for event in stream:
            thing = event["object"]
            if event["type"] not in ("ERROR", "BOOKMARK"):
                if shape.kind == "Table":
                    version = {"resourceVersion": thing["metadata"]["resourceVersion"]}
                    event = event | {"object": self._table(target, [thing], version, shape, request)}
                elif shape.kind == "PartialObjectMetadata":
                    event = event | {"object": partial(thing)}
            await response.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
        return response

    def _shaped(self, request: web.Request, item: Json) -> web.Response:
        shape = shape_of(request)
        if shape.kind == "Table":
            target = parse(request.path, self._resources)
            metadata = {"resourceVersion": item["metadata"]["resourceVersion"]}
            return _json(self._table(target, [item], metadata, shape, request))
        return _json(partial(item) if shape.kind == "PartialObjectMetadata" else item)

    def _table(self, target: Target, items: list[Json], metadata: Json, shape: Shape, request: web.Request) -> Any:
        now = self._objects.instant(self._truth.now())
        include = request.query.get("includeObject", "Metadata")
        return table(target.resource.kind, items, metadata, now, include, shape.version)


def _query(request: web.Request, target: Target) -> Query:
    return Query(
        target.resource.name,
        target.version,
        target.namespace,
        request.query.get("fieldSelector", ""),
        request.query.get("labelSelector", ""),
        target.resource.group,
    )


async def _review_of(request: web.Request) -> Any:
    if request.content_type != kube_protobuf.MEDIA:
        return await _body(request)
    try:
        return kube_protobuf.access_review(await request.read())
    except ValueError as error:
        raise status.bad_request(f"the review can't be read: {error}") from error


async def _body(request: web.Request) -> Any:
    text = await request.read()
    if not text:
        return None
    if "protobuf" in request.content_type:
        raise status.unsupported_media_type()
    try:
        return json.loads(text)
    except ValueError as error:
        raise status.bad_request(f"the body is not JSON: {error}") from error


def _options(body: Any) -> Json:
    if body is not None and not isinstance(body, dict):
        raise status.bad_request("the body is not an object")
    return body or {}


def _dry(request: web.Request) -> bool:
    return "All" in request.query.getall("dryRun", [])


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "") in ("1", "true", "True", "t", "T", "TRUE")


def _number(request: web.Request, name: str, default: float) -> float:
    text = request.query.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise status.bad_request(f'invalid value "{text}" of {name}')
    return float(text)


def _json(document: Mapping[str, Any], code: int = 200, media: str = "application/json") -> web.Response:
    text = json.dumps(document, separators=(",", ":")).encode()
    return web.Response(body=text, status=code, headers={"Content-Type": media})
