"""The program that takes K3s off a host, with all that it made there.

It does what K3s' own k3s-killall.sh and k3s-uninstall.sh do (github.com/k3s-io/k3s, install.sh), which only its
installer writes, and beyond that removes the password of the node and our files. It never deletes below a mount: what
is still mounted within a directory of pods ends it before anything is removed, and what is mounted within the data of
K3s, such as a partition of volumes, is kept and named.
"""

from __future__ import annotations

from typing import Final

from reconciler.model.k3s import BINARY, DATA, UNIT_FILES, K3sRole

_UNITS: Final = " ".join(role.unit for role in K3sRole)
_PODS: Final = "/run/k3s /var/lib/kubelet"  # whose mounts are those of pods
_GONE: Final = "/etc/rancher/k3s /etc/rancher/node /run/flannel /var/lib/cni"
_BIN: Final = BINARY.rpartition("/")[0]
_SCRIPTS: Final = " ".join(
    f"{_BIN}/{name}" for name in ("k3s-killall.sh", "k3s-uninstall.sh", "k3s-agent-uninstall.sh")
)

REMOVAL: Final = f"""\
set -u
[ "$(id -u)" = 0 ] || {{ echo 'only root may' >&2; exit 1; }}
fail() {{ echo "$1" >&2; exit 1; }}
mounts() {{ awk '{{ gsub(/\\\\040/, " ", $2); print $2 }}' /proc/self/mounts; }}
within() {{ mounts | awk -v p="$1" '$0 == p || index($0, p "/") == 1' | sort -r; }}
shims() {{ ps -e -o pid= -o args= | awk '$2 ~ "^{DATA}/data/.*/bin/containerd-shim" {{ print $1 }}'; }}
contained() {{ find /sys/fs/cgroup -path '*kubepods*' -name cgroup.procs -exec cat {{}} + 2>/dev/null; }}

for unit in {_UNITS}; do
  [ -e {UNIT_FILES}/$unit.service ] || continue
  systemctl disable $unit >/dev/null 2>&1
  systemctl stop $unit || fail "$unit does not stop"
done
if command -v docker >/dev/null; then
  for id in $(docker ps -aq --filter name=^/k8s_); do docker rm -f "$id" >/dev/null; done
fi
for try in 1 2 3 4 5; do
  pids="$(shims) $(contained)"
  [ -n "$(echo $pids)" ] || break
  kill -9 $pids 2>/dev/null
  sleep 1
done
[ -z "$(echo $(shims) $(contained))" ] || fail "processes of containers do not end: $(echo $(shims) $(contained))"
for top in {_PODS} /run/netns/cni-; do
  mounts | awk -v p="$top" 'index($0, p) == 1' | sort -r |
    while read -r path; do umount "$path" || umount -f "$path"; done
done
for top in {_PODS}; do
  left=$(within "$top" | head -1)
  [ -z "$left" ] || fail "$left is still mounted: nothing is removed"
done
for link in cni0 flannel.1 flannel-v6.1 flannel-wg flannel-wg-v6 kube-ipvs0; do
  ip link show "$link" >/dev/null 2>&1 && ip link delete "$link"
done
for name in $(ip netns list 2>/dev/null | awk '/^cni-/ {{ print $1 }}'); do ip netns delete "$name"; done
for version in iptables ip6tables; do
  command -v $version-save >/dev/null || continue
  $version-save | grep -v -e KUBE- -e CNI- | grep -iv flannel | $version-restore
done

clear() {{
  if [ -z "$(within "$1")" ]; then rm -rf -- "$1"; return; fi
  for item in "$1"/* "$1"/.[!.]*; do
    [ -e "$item" ] || [ -L "$item" ] || continue
    if mounts | grep -qxF -e "$item"; then echo "kept $item"
    elif [ -d "$item" ] && [ ! -L "$item" ]; then clear "$item"
    else rm -f -- "$item"; fi
  done
}}
for link in kubectl crictl ctr; do
  if [ "$(readlink {_BIN}/$link)" = k3s ]; then rm -f {_BIN}/$link; fi
done
for unit in {_UNITS}; do
  systemctl reset-failed $unit >/dev/null 2>&1
  rm -f {UNIT_FILES}/$unit.service {UNIT_FILES}/$unit.service.env
done
systemctl daemon-reload
for path in {_PODS} {_GONE} {DATA}; do clear $path; done
rm -f {BINARY} {_SCRIPTS}
rmdir /etc/rancher /var/lib/rancher 2>/dev/null
for path in {_PODS} {_GONE} {DATA} {BINARY}; do
  if [ -e $path ]; then echo "left $path"; fi
done
echo end"""
