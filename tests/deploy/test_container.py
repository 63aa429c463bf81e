"""The container image, built from Debian and PyPI, and run by a real OCI runtime as the Helm chart's pod has it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import runpy
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from packaging.utils import canonicalize_name

from tests.cli.shell import LabDirectory, running_lab, until
from tests.cli.test_run import free_port
from tests.conftest import ROOT
from tests.deploy.test_chart import only, rendered
from tests.deploy.test_release import pins
from tests.drivers.helm.real_helm import helm
from tests.drivers.test_spec_repo import by_ssh, ssh_key
from tests.forge.runner import git
from tests.ledger.postgresql import NoServer, running_server
from tests.web.test_access import certificate

BUILD = ROOT / "deploy" / "container" / "build.sh"
PROGRAMS = {"mmdebstrap": "mmdebstrap", "runc": "runc", "umoci": "umoci"}
pytestmark = [pytest.mark.tool, pytest.mark.xdist_group("container")]


def test_a_process_that_imports_the_command_is_not_the_command_again(tmp_path: Path) -> None:
    """The processes of a rehearsal import the file that was started, under another name (multiprocessing, spawn)."""
    program = tmp_path / "reconciler"
    program.write_text(BUILD.read_text().partition("<<'PROGRAM'\n")[2].partition("\nPROGRAM\n")[0])
    runpy.run_path(str(program), run_name="__mp_main__")  # ends pytest where it is the command
    with pytest.raises(SystemExit), mock.patch.object(sys, "argv", ["reconciler", "--version"]):
        runpy.run_path(str(program), run_name="__main__")


@dataclass(frozen=True)
class Image:
    """An image that was built: its folder, and a bundle of it that runc runs."""

    out: Path
    bundle: Path

    @property
    def config(self) -> dict[str, Any]:
        """A new configuration of a container: on the machine's network, with nothing that it may write."""
        config: dict[str, Any] = json.loads((self.bundle / "config.json").read_text())
        config["root"]["readonly"] = True
        config["process"] |= {"terminal": False, "capabilities": {}, "noNewPrivileges": True}
        config["linux"]["namespaces"] = [one for one in config["linux"]["namespaces"] if one["type"] != "network"]
        config["linux"].pop("resources", None)
        return config

    def start(self, folder: Path, config: dict[str, Any]) -> subprocess.Popen[str]:
        folder.mkdir(parents=True, exist_ok=True)
        config["root"]["path"] = str(self.bundle / "rootfs")
        (folder / "config.json").write_text(json.dumps(config))
        command: list[str | Path] = [
            "runc",
            "--root",
            folder / "runc",
            "run",
            "--bundle",
            folder,
            f"test-{os.getpid()}",
        ]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program, in place of the image's own."""
        config = self.config
        config["process"]["args"] = list(words)
        process = self.start(folder, config)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)


def extension(folder: Path) -> Path:
    """The wheel of the example of an extension."""
    source = shutil.copytree(ROOT / "docs/examples/acme-fleet", folder / "source")
    words: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source]
    subprocess.run(words, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt-get install {package})")
    if os.geteuid() != 0:
        pytest.skip("a container with a user of its own takes root here")
    folder = tmp_path_factory.mktemp("container")
    given = {"PYTHON": sys.executable, "HELM": helm(), "PACKAGES": str(extension(folder / "extension"))}
    built = subprocess.run([BUILD, folder / "out"], env=os.environ | given, capture_output=True, text=True)
    if "mmdebstrap" in built.stderr and ("Could not resolve" in built.stderr or "Failed to fetch" in built.stderr):
        pytest.skip(f"Debian's archive can't be reached: {built.stderr.strip()[-200:]}")
    assert built.returncode == 0, built.stderr
    command: list[str | Path] = ["umoci", "unpack", "--image", folder / "out" / "image:latest", folder / "bundle"]
    subprocess.run(command, check=True, capture_output=True)
    folder.parent.chmod(0o755)
    folder.chmod(0o755)
    made = Image(folder / "out", folder / "bundle")
    tried = made.run(folder / "tried", "true")
    if tried.returncode != 0 and "cgroup" in tried.stderr:
        pytest.skip(f"no container can be started here: {tried.stderr.strip()}")
    yield made
    shutil.rmtree(folder)  # 400 MB


def test_the_program_and_what_it_starts_are_in_it(image: Image, tmp_path: Path) -> None:
    entry = image.config["process"]
    assert entry["args"] == ["tini", "--", "reconciler"]
    assert (entry["user"]["uid"], entry["user"]["gid"]) == (65532, 65532)
    for words in (
        ("tini", "--", "reconciler", "--version"), ("git", "--version"), ("ssh", "-V"), ("gpg", "--version"),
        ("kubectl", "version", "--client"), ("helm", "version", "--short"), ("minisign", "-v"),
        ("sh", "-c", "type ssh-keygen"),
    ):  # fmt: skip
        done = image.run(tmp_path / words[-1].strip("-").replace(" ", "-"), *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)


def test_an_extension_that_was_asked_for_is_in_it(image: Image, tmp_path: Path) -> None:
    """With the place that docs/how-to/extend.md names for a derived image."""
    done = image.run(tmp_path, "reconciler", "--version")
    assert "acme-fleet 1.2.0" in done.stdout, (done.stdout, done.stderr)
    [place] = re.findall(r"COPY --from=packages /packages (\S+)", (ROOT / "docs/how-to/extend.md").read_text())
    assert image.bundle.joinpath("rootfs", place.strip("/"), "acme_fleet/raid.py").is_file()


def test_nothing_in_it_may_be_written_or_gives_rights(image: Image, tmp_path: Path) -> None:
    done = image.run(tmp_path, "sh", "-c", "id -un; touch /usr/x || touch /var/lib/reconciler/x")
    assert done.stdout.split() == ["reconciler"]
    assert done.stderr.count("Read-only file system") == 2
    rights = [path for path in image.bundle.joinpath("rootfs").rglob("*") if not path.is_symlink() and path.is_file()]
    assert [path for path in rights if path.stat().st_mode & 0o6000] == []


def test_the_list_of_contents_has_every_package(image: Image) -> None:
    listed = json.loads((image.out / "sbom.cdx.json").read_text())
    assert listed["specVersion"] == "1.6", "which readers of attestations know"
    assert listed["metadata"]["component"]["name"] == "gpu-fleet-reconciler"
    purls = {one["purl"].partition("?")[0] for one in listed["components"] if "purl" in one}
    of_python = [purl.removeprefix("pkg:pypi/").split("@") for purl in purls if purl.startswith("pkg:pypi/")]
    shown = {(canonicalize_name(name), version) for name, version in of_python}
    python = image.bundle / "rootfs/usr/local/lib/python3.11/dist-packages"
    there = {(canonicalize_name(one.name), one.version) for one in importlib.metadata.distributions(path=[str(python)])}
    assert ("acme-fleet", "1.2.0") in there
    there = {(name, version) for name, version in there if name != "gpu-fleet-reconciler"}
    named = {(canonicalize_name(one["name"]), one.get("version", "")) for one in listed["components"]}
    assert ("acme-fleet", "1.2.0") in named, "a wheel of a folder has no address in an index"
    assert there - {("acme-fleet", "1.2.0")} <= shown
    locked = {(name, version) for name, (version, _) in pins().items()}
    assert there - {("acme-fleet", "1.2.0")} <= locked, "what the lock does not have"
    assert {"asyncssh", "psycopg", "sushy"} <= {name for name, _ in there}
    [put_in] = (one for one in listed["components"] if one["name"] == "helm")
    assert put_in["hashes"][0]["content"] == hashlib.sha256(Path(helm()).read_bytes()).hexdigest()
    dpkg = image.bundle.joinpath("rootfs/var/lib/dpkg/status").read_text().split("\n\n")
    fields = [dict(line.split(": ", 1) for line in one.splitlines() if ": " in line) for one in dpkg if one.strip()]
    debian = {f"pkg:deb/debian/{one['Package']}" for one in fields}
    assert len(debian) > 80
    assert debian <= {purl.partition("@")[0] for purl in purls}


@pytest.mark.wire
def test_the_pod_of_the_chart_reads_a_fleet(image: Image, tmp_path: Path) -> None:
    """With the chart's arguments, variables, mounts and restrictions, on a lab, with its ledger on PostgreSQL."""
    tmp_path.parent.chmod(0o755)
    tmp_path.chmod(0o755)
    port = free_port()
    try:
        with running_server() as server, running_lab(tmp_path / "lab", "--scenario", "clean", time_scale=1) as lab:
            config = pod(image, tmp_path, lab, server.database(), port)
            process = image.start(tmp_path / "container", config)
            try:
                until(lambda: process.poll() is not None or ready(tmp_path, port), seconds=60)
            except AssertionError:
                process.terminate()
                raise AssertionError(process.communicate(timeout=30)) from None
            process.terminate()
            out, err = process.communicate(timeout=30)
            told = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
            assert told, (out, err)
            assert told[-1]["event"] == "parked", err
            assert process.returncode == 0
    except NoServer as error:
        pytest.skip(str(error))


def ready(folder: Path, port: int) -> bool:
    """Whether it has read every node, by its metrics."""
    trusted = ssl.create_default_context(cafile=folder / "ca.pem")
    try:
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusted) as client:
            if client.get("/readyz").status_code != 200:
                return False
            metrics = client.get("/metrics").text
    except httpx.TransportError:
        return False
    sources = [line for line in metrics.splitlines() if line.startswith("reconciler_observation_oldest_")]
    return len(sources) == 3 and "\nreconciler_observation_silent_nodes{" not in metrics


def pod(image: Image, folder: Path, lab: LabDirectory, ledger: str, port: int) -> dict[str, Any]:
    """Return the configuration of the chart's container, with what its volumes would hold."""
    volumes = volumes_of(folder, lab)
    options = json.dumps(["--endpoints=/run/credentials/endpoints.json"])
    # A lab's secrets go to loopback alone, so they are no tokens of an API.
    documents = rendered("ledger.create=true", 'spec.secret=""', "tokens=null", f"options={options}")
    template = only("Deployment", documents)["spec"]["template"]["spec"]
    (container,) = template["containers"]
    config = image.config
    places = {
        "https://git.example.com/ops/fleet.git": "/repo",  # the chart takes https alone
        "0.0.0.0:8090": f"127.0.0.1:{port}",
    }
    arguments = container["args"]
    fields = {"POD_NAMESPACE": "gpu-fleet", "POD_NAME": "reconciler-0"}  # as the kubelet fills them in
    places |= {f"$({name})": value for name, value in fields.items()}
    for old, new in places.items():
        arguments = [argument.replace(old, new) for argument in arguments]
    config["process"]["args"] += arguments
    variables = {one["name"]: one.get("value", ledger) for one in container["env"]} | fields
    config["process"]["env"] += [f"{name}={value}" for name, value in variables.items()]
    wanted = template["securityContext"]
    config["process"]["user"] = {
        "uid": wanted["runAsUser"], "gid": wanted["runAsGroup"], "additionalGids": [wanted["fsGroup"]]
    }  # fmt: skip
    socket = ledger.partition("host=")[2]
    Path(socket).chmod(0o755)
    mounts = [
        (volumes[one["name"]], one["mountPath"], "ro" if one.get("readOnly") else "rw")
        for one in container["volumeMounts"]
    ]
    for source, place, mode in [*mounts, (folder / "repo", "/repo", "ro"), (Path(socket), socket, "ro")]:
        config["mounts"].append(
            {"destination": place, "source": str(source), "type": "bind", "options": ["rbind", mode, "nosuid", "nodev"]}
        )
    return config


def volumes_of(folder: Path, lab: LabDirectory) -> dict[str, Path]:
    """Write what a cluster would mount, with its modes: by the name of the volume."""
    shutil.copytree(lab.spec, folder / "repo" / "fleet-spec")
    git(folder / "repo", "init", "-q", "-b", "main")
    key = ssh_key(folder / "signer")
    git(folder / "repo", "add", "-A")
    git(folder / "repo", *by_ssh(folder / "signer"), "commit", "-q", "-S", "-m", "the lab's fleet")
    for path in (folder / "repo", *(folder / "repo").rglob("*")):
        os.chown(path, 65532, 65532)  # git reads no repository of somebody else
    made = {name: folder / name for name in ("state", "tmp", "config", "credentials", "tls")}
    for name in ("state", "tmp", "config", "tls"):
        made[name].mkdir()
    (made["config"] / "signers").write_text(f'a@example.com namespaces="git" {key}\n')
    shutil.copytree(lab.path, made["credentials"], ignore=shutil.ignore_patterns("control.sock", "fleet-spec"))
    for path in (made["credentials"] / "secrets").iterdir():
        path.rename(made["credentials"] / path.name)  # a Secret has no folders
    endpoints = made["credentials"] / "endpoints.json"
    endpoints.write_text(endpoints.read_text().replace('"secrets/', '"'))
    certificate(folder, "ca")
    shown = certificate(folder, "server", "ca")
    for path, name in zip(shown, ("tls.crt", "tls.key"), strict=True):
        shutil.copy(path, made["tls"] / name)
    for name in made:
        for path in (made[name], *made[name].rglob("*")):
            os.chown(path, 0, 65532)
            path.chmod(0o2775 if path.is_dir() else 0o440)  # as kubelet does with fsGroup and defaultMode
    return made


def test_a_folder_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    done = subprocess.run(
        [BUILD, tmp_path], env=os.environ | {"PYTHON": sys.executable}, capture_output=True, text=True
    )
    assert (done.returncode, (tmp_path / "mine").read_text()) == (64, "x")
