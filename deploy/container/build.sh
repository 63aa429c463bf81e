#!/usr/bin/env bash
# Builds the container image as an OCI layout, with what is in it as CycloneDX. No root, no daemon and no registry is needed.
#   usage: deploy/container/build.sh OUT
#   OUT/image: the OCI layout, with one image "latest"; OUT/sbom.cdx.json; OUT/digest: the image's, sha256:...
#   PYTHON: the python3 of the environment that `make venv` made.
#   KUBECTL, HELM: programs to put in; without KUBECTL, Debian's. SUITE, MIRROR: which Debian.
#   PACKAGES: what to install beside the lock, with spaces between: extensions that the Fleet names, by their wheels.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=$(realpath -m "${1:?usage: deploy/container/build.sh OUT}")
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
tools=$(dirname "$python")
packages=ca-certificates,git,gnupg,minisign,openssh-client,python3,tini
# The same commit and the same archive of Debian give the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -e $out && ! -e $out/image/oci-layout && -n $(ls -A "$out") ]]; then
    echo "$out holds something else than an image: name another folder" >&2
    exit 64
fi
rm -rf "$out"
mkdir -p "$out" "$work/bin" "$work/wheel"

# What is on PyPI, by the hashes of the lock, and this package: where Debian's python3 looks for it.
libraries=usr/local/lib/python3.11/dist-packages
mkdir -p "$work/root/$libraries"
"$tools/uv" pip install --quiet --target "$work/root/$libraries" --python-version 3.11 --only-binary :all: \
    --require-hashes -r deploy/requirements.lock
"$python" -m build --wheel --no-isolation --outdir "$work/wheel" . >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
"$python" -m zipfile -e "$work"/wheel/*.whl "$work/root/$libraries"
if [[ -n ${PACKAGES:-} ]]; then # what the lock names stays as it is: a package that wants another version is refused
    xargs "$tools/uv" pip install --quiet --target "$work/root/$libraries" --python-version 3.11 --only-binary :all: \
        --find-links "$work/wheel" --constraint deploy/requirements.lock <<<"$PACKAGES"
fi
rm -rf "$work/root/$libraries/bin" # they start the python of this machine
version=$("$python" -m hatchling version)

programs=$work/root/usr/local/bin
mkdir -p "$programs"
cat >"$programs/reconciler" <<'PROGRAM'
#!/usr/bin/python3
import sys

from reconciler.cli.main import main

if __name__ == "__main__":  # a process of a rehearsal imports this file, and must not be the command again
    sys.exit(main())
PROGRAM
chmod 755 "$programs/reconciler"
if [[ -n ${KUBECTL:-} ]]; then
    install -m 755 "$KUBECTL" "$programs/kubectl"
else
    packages+=,kubernetes-client
    echo "kubectl is Debian's, which is old: set KUBECTL to one that is within a minor version of your API server" >&2
fi
if [[ -n ${HELM:-} ]]; then
    install -m 755 "$HELM" "$programs/helm"
else
    echo "no helm is put in: set HELM where the spec has releases" >&2
fi

# The user's name is for ssh and git, which refuse a uid without one.
user='reconciler:x:65532:65532::/var/lib/reconciler:/usr/sbin/nologin'
mmdebstrap --quiet --variant=essential --skip=output/dev --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook="sync-in '$work/root' /" \
    --customize-hook="chroot \"\$1\" python3 -m compileall -q --invalidation-mode unchecked-hash /$libraries" \
    --customize-hook="echo '$user' >> \"\$1/etc/passwd\"; echo 'reconciler:x:65532:' >> \"\$1/etc/group\"" \
    --customize-hook="install -d -o 65532 -g 65532 \"\$1/var/lib/reconciler\"" \
    --customize-hook="find \"\$1\" -xdev -perm /6000 -type f -exec chmod a-s {} +" \
    "${SUITE:-bookworm}" "$work/root.tar" ${MIRROR:+"$MIRROR"}

umoci init --layout "$out/image"
umoci new --image "$out/image:latest"
umoci raw add-layer --image "$out/image:latest" --history.created "$created" \
    --history.created_by deploy/container/build.sh "$work/root.tar"
umoci config --image "$out/image:latest" --created "$created" --no-history \
    --config.user 65532:65532 --config.workingdir /var/lib/reconciler \
    --config.env PATH=/usr/local/bin:/usr/bin:/bin --config.env LANG=C.UTF-8 --config.env HOME=/var/lib/reconciler \
    --config.env USER=reconciler \
    --config.entrypoint tini --config.entrypoint -- --config.entrypoint reconciler \
    --config.label "org.opencontainers.image.title=gpu-fleet-reconciler" \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.revision=$(git describe --always --dirty --abbrev=40 --exclude '*')" \
    --config.label "org.opencontainers.image.licenses=Apache-2.0"
umoci gc --layout "$out/image"
"$python" -c 'import json, sys; print(json.load(sys.stdin)["manifests"][0]["digest"])' \
    <"$out/image/index.json" >"$out/digest"

# What is in it: Debian's packages as dpkg knows them, and Python's as their metadata say.
cat >"$work/bin/python" <<PROGRAM
#!/bin/sh
exec env PYTHONPATH='$work/root/$libraries' '$python' -S "\$@"
PROGRAM
chmod 755 "$work/bin/python"
"$tools/cyclonedx-py" environment --pyproject pyproject.toml --output-reproducible -o "$work/python.cdx.json" "$work/bin/python"
serial=$("$python" -c 'import sys, uuid; print(uuid.uuid5(uuid.NAMESPACE_OID, sys.argv[1]))' "$(cat "$out/digest")")
form=(-t cdx --cdx-schema-version 1.6 --timestamp "$created")
"$tools/debsbom" generate "${form[@]}" --root "$work/root.tar" -o "$work/debian" >/dev/null
"$tools/debsbom" merge "${form[@]}" --distro-name gpu-fleet-reconciler --distro-version "$version" \
    --cdx-serialnumber "$serial" \
    -o "$out/sbom" "$work/debian.cdx.json" "$work/python.cdx.json" >/dev/null
# `debsbom merge` writes the newest form of CycloneDX, whichever is asked for. Programs that were put in are known by their
# digests alone.
"$python" - "$out/sbom.cdx.json" ${KUBECTL:+"$programs/kubectl"} ${HELM:+"$programs/helm"} <<'PROGRAM'
import hashlib
import json
import sys
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion

listing, *programs = map(Path, sys.argv[1:])
merged = Bom.from_json(json.loads(listing.read_text()))
listed = json.loads(make_outputter(merged, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string())
for program in programs:
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    hashes = [{"alg": "SHA-256", "content": digest}]
    listed["components"].append(
        {"type": "application", "bom-ref": f"file:{program.name}", "name": program.name, "hashes": hashes}
    )
listing.write_text(json.dumps(listed, indent=1) + "\n")
PROGRAM
echo "gpu-fleet-reconciler $version $(cat "$out/digest"), $(du -sh "$out/image" | cut -f1), in $out/image"
