"""The part of a Cluster that describes a K3s cluster, which the reconciler installs and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from reconciler.spec.kinds.base import Enforced, Sha256, WebUrl
from reconciler.strict_yaml.models import Matching, Model, Name, Text

K3sVersion = Annotated[str, Matching(r"v1\.\d{1,3}\.\d{1,3}\+k3s\d{1,2}", "a version of K3s like v1.31.5+k3s1")]
Endpoint = Annotated[str, Matching(r"https://[a-z0-9.-]+(:\d{1,5})?", "a URL like https://10.0.0.10:6443")]


class Datastore(StrEnum):
    ETCD = "etcd"
    EXTERNAL = "external"


class Packaged(StrEnum):
    """Components that K3s brings and can leave out (docs.k3s.io, "Packaged components")."""

    COREDNS = "coredns"
    SERVICELB = "servicelb"
    TRAEFIK = "traefik"
    LOCAL_STORAGE = "local-storage"
    METRICS_SERVER = "metrics-server"


class Download(Model):
    """A file that hosts download; the digest is compared before it is used."""

    url: WebUrl = Field(description="Where hosts get it; a download that breaks off goes on where it was.")
    sha256: Sha256 = Field(description="Digest of the file.")


class Release(Model):
    """One version of K3s and its files."""

    version: K3sVersion = Field(description="Version, as `k3s --version` shows it.")
    binary: Download = Field(description="The program k3s of this version.")
    images: Download | None = Field(
        default=None, description="The images of this version, as k3s-airgap-images-ARCH.tar.zst. Absent: pulled."
    )


class K3s(Model):
    """A K3s cluster with embedded etcd."""

    servers: Name = Field(description="NodePool whose nodes are the servers: 1, 3 or 5. All others are agents.")
    endpoint: Endpoint = Field(description="Where nodes reach the servers: an address that outlives each of them.")
    release: Release = Field(description="What servers run, and agents that have no release of their own.")
    agents: Release | None = Field(
        default=None, description="What agents run: never newer than the servers, and at most three minors older."
    )
    datastore: Annotated[Datastore, Enforced(Datastore.ETCD)] = Field(
        default=Datastore.ETCD, description="Where the servers keep their state: etcd within them."
    )
    disable: tuple[Packaged, ...] = Field(default=(), description="Components of K3s that are left out.")
    docker: bool = Field(default=False, description="Containers run in Docker, by cri-dockerd, not in containerd.")
    registries: Mapping[Name, tuple[WebUrl, ...]] = Field(
        default={}, description="Mirrors of a registry, in order of use: docker.io: [https://mirror.example]."
    )
    bootstrap: bool = Field(
        default=False,
        description="Consent to begin a new cluster, where no server has a datastore. Take it away afterwards.",
    )
    allow_deprecated: tuple[Text, ...] = Field(
        default=(),
        description="Deprecated APIs that may be in use when servers go up to a version that has them no more, as the "
        "plan names them: flowcontrol.apiserver.k8s.io/v1beta3/flowschemas.",
    )
    allow_downtime: bool = Field(
        default=False,
        description="Whether the only server may be drained and restarted, while which the cluster has no API. With "
        "several servers, there is no need for it.",
    )
    server_names: tuple[Text, ...] = Field(
        default=(), description="More names and addresses in the certificate of the API server."
    )
