"""The part of a Cluster that describes a K3s cluster, which the reconciler installs and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from reconciler.spec.kinds.base import SavedPath, Sha256, WebUrl
from reconciler.strict_yaml.models import Matching, Model, Name, Text

K3sVersion = Annotated[str, Matching(r"v1\.\d{1,3}\.\d{1,3}\+k3s\d{1,2}", "a version of K3s like v1.31.5+k3s1")]
Endpoint = Annotated[str, Matching(r"https://[a-z0-9.-]+(:\d{1,5})?", "a URL like https://10.0.0.10:6443")]


ServerAddress = Annotated[str, Matching(r"[a-z0-9.-]+:\d{1,5}", "an address like db.example:5432")]
BucketName = Annotated[str, Matching(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "the name of a bucket like k3s-main")]
Folder = Annotated[str, Matching(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*", "a folder of a bucket like clusters/main")]
Region = Annotated[str, Matching(r"[a-z0-9-]{1,40}", "a region like eu-central-1")]
Cron = Annotated[
    str,
    Matching(r"[0-9*/,-]+( [0-9A-Za-z*/,?-]+){4}", "five fields of cron like 0 */12 * * *, which is every 12 hours"),
]


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


class Database(Model):
    """A database in which all servers keep the state of the cluster."""

    server: ServerAddress = Field(description="Host and port of the database; both secrets must be allowed there.")
    endpoint: Name = Field(
        description="Name of a secret that holds K3s' datastore-endpoint with `server` in it, such as "
        "postgres://USER:PASSWORD@db.example:5432/k3s. To change its value, give it another name."
    )
    token: Name = Field(
        description="Name of a secret that holds the token of all servers. K3s encrypts the cluster's keys in the "
        "database with it: a backup of the database is of no use without it, and it can't be changed here."
    )
    saved_before: K3sVersion | None = Field(
        default=None,
        description="The release of K3s before which you have saved the database and the token, as K3s saves neither. "
        "Servers go to another release only with it.",
    )
    ca_file: SavedPath | None = Field(default=None, description="File on the servers that has the database's CA.")
    cert_file: SavedPath | None = Field(default=None, description="File on the servers with a client's certificate.")
    key_file: SavedPath | None = Field(default=None, description="File on the servers with the key of `certFile`.")

    @model_validator(mode="after")
    def _in_pairs(self) -> Database:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("certFile and keyFile: K3s takes both or none")
        return self


class ObjectStore(Model):
    """An object store that speaks S3."""

    server: ServerAddress = Field(description="Host and port; both secrets must be allowed there.")
    bucket: BucketName = Field(description="Bucket, which exists.")
    folder: Folder = Field(description="Folder within it. Two clusters in one folder delete each other's snapshots.")
    region: Region = Field(default="us-east-1", description="Region of the bucket.")
    access_key: Name = Field(description="Name of a secret that holds the access key.")
    secret_key: Name = Field(description="Name of a secret that holds the secret key.")
    ca_file: SavedPath | None = Field(default=None, description="File on the servers that has the store's CA.")


class Snapshots(Model):
    """When K3s saves etcd by itself, how many snapshots stay, and where copies of them go."""

    schedule: Cron = Field(default="0 */12 * * *", description="When, as five fields of cron in the servers' time.")
    keep: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=5,
        description="How many stay, on disk and in the store: of those by schedule, and on each server of those before "
        "an upgrade.",
    )
    s3: ObjectStore | None = Field(default=None, description="Where each snapshot is copied to. Absent: nowhere.")


class K3s(Model):
    """A K3s cluster, with etcd within its servers or with a database."""

    servers: Name = Field(
        description="NodePool whose nodes are the servers: 1, 3 or 5 active ones with etcd, any number with a "
        "database. All others are agents."
    )
    endpoint: Endpoint = Field(description="Where nodes reach the servers: an address that outlives each of them.")
    release: Release = Field(description="What servers run, and agents that have no release of their own.")
    agents: Release | None = Field(
        default=None, description="What agents run: never newer than the servers, and at most three minors older."
    )
    datastore: Datastore = Field(
        default=Datastore.ETCD,
        description="Where the servers keep the cluster's state: in etcd within them, or in the database of "
        "`database`. Servers that have it elsewhere are left as they are, and the plan says so.",
    )
    database: Database | None = Field(default=None, description="The database of `datastore: external`.")
    snapshots: Snapshots | None = Field(
        default=None, description="Snapshots of etcd. Absent: every 12 hours, and 5 stay on each server's disk."
    )
    disable: tuple[Packaged, ...] = Field(default=(), description="Components of K3s that are left out.")
    docker: bool = Field(
        default=False,
        description="Containers run in Docker, by cri-dockerd, not in containerd. `images` of a release, which K3s "
        "loads into its own containerd alone, are refused then.",
    )
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
