"""The program that takes K3s from a host, in a real shell, with real mounts in a namespace of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from reconciler.model.k3s import BINARY, CONFIG, DATA, DATASTORE, IMAGES, PASSWORD, UNIT_FILES
from reconciler.model.k3s_removal import REMOVAL
from tests.facts.test_k3s_script import Host

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts need root and unshare"),
]
# Each place that the program looks at; what it must not see is the machine of the test.
PLACES = ("/usr/local", "/var/lib", "/etc/", "/run/", "/sys/fs/cgroup")


class Removed(Host):
    """A folder in place of /, as K3s leaves it. `systemctl`, `ip` and `ps` note what they are asked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.program("bin/systemctl", f'echo "$@" >> {root}/asked')
        self.program("bin/ip", f'echo ip "$@" >> {root}/asked; case "$1 $2" in "link show") test "$3" = cni0;; esac')
        self.program("bin/ps", "true")
        (root / "sys/fs/cgroup").mkdir(parents=True)
        for path in (BINARY, CONFIG, PASSWORD, f"{UNIT_FILES}/k3s.service", f"{DATASTORE}/member/snap/db",
                     f"{IMAGES}/a.tar.zst", "/var/lib/kubelet/config", "/run/k3s/containerd/containerd.sock",
                     "/var/lib/cni/networks/x", "/etc/hosts", "/var/lib/other/file"):  # fmt: skip
            self.file(path, "x")
        (root / "usr/local/bin/kubectl").symlink_to("k3s")
        self.file("/usr/local/bin/ctr", "of somebody else")

    def remove(self, before: str = "true", after: str = "true") -> subprocess.CompletedProcess[str]:
        """Run it in a namespace of mounts. `before`, `after`: what else happens there."""
        program = REMOVAL
        for folder in PLACES:
            program = program.replace(folder, f"{self.root}{folder}")
        shell = f'{before}\nsh -c "$PROGRAM"\nstatus=$?\n{after}\nexit $status'
        env = {"PATH": f"{self.root}/bin:/usr/sbin:/usr/bin:/bin", "PROGRAM": program}
        ran = subprocess.run(["unshare", "-m", "sh", "-c", shell], env=env, capture_output=True, text=True)
        ran.stdout, ran.stderr = (text.replace(str(self.root), "") for text in (ran.stdout, ran.stderr))
        return ran

    def files(self) -> set[str]:
        skip = ("/bin/", "/asked")
        found = (path for path in self.root.rglob("*") if path.is_file() or path.is_symlink())
        return {name for path in found if not (name := str(path).removeprefix(str(self.root))).startswith(skip)}


def test_nothing_of_k3s_is_left_and_nothing_else_is_touched(tmp_path: Path) -> None:
    host = Removed(tmp_path)
    ran = host.remove()
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr
    assert host.files() == {"/etc/hosts", "/var/lib/other/file", "/usr/local/bin/ctr"}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[:2] == ["disable k3s", "stop k3s"]
    assert "ip link delete cni0" in asked
    assert "ip link delete flannel.1" not in asked
    again = host.remove()
    assert (again.returncode, again.stdout) == (0, "end\n")


def test_a_partition_within_the_data_of_k3s_is_kept_and_named(tmp_path: Path) -> None:
    host = Removed(tmp_path)
    volumes = f"{tmp_path}{DATA}/storage"
    before = f"mkdir -p {volumes}; mount -t tmpfs none {volumes}; echo data > {volumes}/file"
    ran = host.remove(before, f"cat {volumes}/file")
    assert ran.stdout.splitlines() == [f"kept {DATA}/storage", f"left {DATA}", "end", "data"]
    assert host.files() == {"/etc/hosts", "/var/lib/other/file", "/usr/local/bin/ctr"}


def test_mounts_of_pods_end_before_anything_is_removed(tmp_path: Path) -> None:
    """A volume that is bound into a pod is on the same file system: removing below it would remove the volume."""
    host = Removed(tmp_path)
    host.file("/srv/volume/precious", "data")
    inside = f"{tmp_path}/var/lib/kubelet/pods/a b/volume"
    before = f'mkdir -p "{inside}"; mount --bind {tmp_path}/srv/volume "{inside}"'
    ran = host.remove(before)
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr
    assert "/srv/volume/precious" in host.files()


def test_a_mount_that_stays_stops_it_before_anything_is_removed(tmp_path: Path) -> None:
    host = Removed(tmp_path)
    host.file("/srv/volume/precious", "data")
    host.program("bin/umount", "echo target is busy >&2; exit 32")
    inside = f"{tmp_path}/var/lib/kubelet/pods/x"
    before = f"mkdir -p {inside}; mount --bind {tmp_path}/srv/volume {inside}"
    kept = host.files()
    ran = host.remove(before)
    assert ran.returncode == 1
    assert "/var/lib/kubelet/pods/x is still mounted: nothing is removed" in ran.stderr
    assert host.files() >= kept


def test_a_unit_that_does_not_stop_stops_it(tmp_path: Path) -> None:
    host = Removed(tmp_path)
    host.program("bin/systemctl", 'test "$1" != stop')
    kept = host.files()
    ran = host.remove()
    assert (ran.returncode, host.files()) == (1, kept)
    assert "k3s does not stop" in ran.stderr


def test_nobody_but_root_begins(tmp_path: Path) -> None:
    host = Removed(tmp_path)
    host.program("bin/id", "echo 1000")
    assert (host.remove().returncode, CONFIG in host.files()) == (1, True)


def test_processes_of_containers_end(tmp_path: Path) -> None:
    """A real process, in a file that stands for its cgroup, which its end empties."""
    host = Removed(tmp_path)
    with subprocess.Popen(["sleep", "600"]) as process:
        listed = host.file("/sys/fs/cgroup/kubepods.slice/pod1/cgroup.procs", f"{process.pid}\n")
        host.program("bin/sleep", f"echo -n > {listed}")
        ran = host.remove()
        assert process.wait(10) == -9
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr
