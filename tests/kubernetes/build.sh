#!/usr/bin/env bash
# Builds kube-apiserver, kube-controller-manager and kube-scheduler from Debian's source package, and prints the folder
# that they and etcd are in. A second call finds them there and does nothing. Needs Debian 12 on a machine with dpkg-dev
# and 5 GB of disk, and no root: packages are unpacked, and none is installed. It takes five minutes on two cores.
#   usage: build.sh   KUBERNETES_CACHE: where to keep them   MIRROR: of Debian   JOBS: of the compiler, one per core if absent
set -euo pipefail

version=1.20.2 # what bookworm has: the server API that the oldest kubectl we support is from
programs=(kube-apiserver kube-controller-manager kube-scheduler)

cache=${KUBERNETES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpu-fleet-reconciler/kubernetes}
built=$cache/$version-2 # the second way to build it
say() { echo "kubernetes $version: $*" >&2; }
die() { say "$*"; exit 1; }

if [[ -d $built ]]; then
    echo "$built"
    exit 0
fi
for program in apt-get dpkg-source dpkg-deb; do
    command -v "$program" >/dev/null || die "$program is missing: this needs Debian 12 (apt-get install dpkg-dev)"
done

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9 # another checkout may be building it
if [[ -d $built ]]; then
    echo "$built"
    exit 0
fi
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"

# --- packages, with a list of sources of our own ---

keys=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -e $keys ]] || die "$keys is missing: this needs Debian 12"
for kind in deb deb-src; do
    echo "$kind [signed-by=$keys] ${MIRROR:-http://deb.debian.org/debian} bookworm main"
done >sources.list
mkdir -p lists/partial cache/archives/partial
apt() {
    LC_ALL=C.UTF-8 apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User= "$@" >&2
}
say "fetching the source, the compiler and etcd (120 MB)"
apt update
apt download golang-1.19-go golang-1.19-src etcd-server golang-github-modern-go-reflect2-dev
apt source --download-only kubernetes
for package in ./*.deb; do
    dpkg-deb -x "$package" root
done
source=src/k8s.io/kubernetes # where a GOPATH has it
mkdir -p src/k8s.io
dpkg-source -x ./kubernetes_*"$version"-*.dsc "$source" >&2 || die "bookworm has another version"

# Kubernetes 1.20 brings reflect2 1.0.1, which Go from 1.18 on breaks: an API server that takes a custom resource crashes
# as it walks over a map (github.com/modern-go/reflect2, issue 26). Debian's package is 1.0.2, which has the fix.
reflect2=vendor/github.com/modern-go/reflect2
rm -rf "${source:?}/$reflect2"
cp -r root/usr/share/gocode/src/github.com/modern-go/reflect2 "$source/$reflect2"

# --- the build ---

export GOROOT=$work/root/usr/lib/go-1.19 GOPATH=$work GOCACHE=$work/go-cache GO111MODULE=off CGO_ENABLED=0 GOFLAGS=-p=${JOBS:-$(nproc)}
go() { "$GOROOT/bin/go" "$@"; }
cd "$source"
say "generating pkg/generated/openapi, which the source package lacks"
mapfile -t described < <(grep -rl --include='*.go' '^// +k8s:openapi-gen=' pkg staging/src/k8s.io |
    grep -v -e _test.go -e /testdata/ -e /code-generator/ -e /sample-apiserver/ | xargs -n 1 dirname | sort -u |
    sed -e 's,^staging/src/,k8s.io/kubernetes/vendor/,' -e 's,^pkg/,k8s.io/kubernetes/pkg/,')
go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
"$work/openapi-gen" -O zz_generated.openapi -p k8s.io/kubernetes/pkg/generated/openapi -r /dev/null \
    -h hack/boilerplate/boilerplate.generatego.txt -i "$(IFS=,; echo "${described[*]}")" >&2

say "compiling"
stamp=
for package in component-base/version client-go/pkg/version; do
    for value in gitVersion=v$version gitMajor=1 gitMinor=20 gitTreeState=clean; do
        stamp+=" -X k8s.io/kubernetes/vendor/k8s.io/$package.$value"
    done
done
mkdir "$work/done"
for program in "${programs[@]}"; do
    go build -trimpath -ldflags "-s -w$stamp" -o "$work/done/$program" "./cmd/$program"
done
cp "$work/root/usr/bin/etcd" "$work/done/"
mv "$work/done" "$built" # all of it or nothing
echo "$built"
