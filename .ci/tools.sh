#!/usr/bin/env bash
# Installs those of the named Debian packages whose programs are missing here, where that is allowed without a question
# (root, or sudo without a password). What can't be installed is named, and that is no failure: tests that need it skip.
#   usage: .ci/tools.sh PACKAGE...
set -euo pipefail

has() { PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v "$1" >/dev/null; }

present() { # package -> is what we want of it here, from whatever source?
    case $1 in
    binutils) has readelf ;;
    chromium) has chromium || has chromium-browser || has google-chrome ;;
    dosfstools) has mkfs.vfat ;;
    dpkg-dev) has dpkg-source ;;
    fdisk) has sfdisk ;;
    gnupg) has gpg ;;
    iproute2) has ip ;;
    kmod) has depmod ;;
    kubernetes-client) has kubectl ;;
    mtools) has mcopy ;;
    openssh-client) has ssh ;;
    openssh-server) has sshd ;;
    postgresql) has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ;;
    nodejs) has node ;;
    prometheus) has promtool ;;
    tpm2-tools) has tpm2 ;;
    python3-venv) "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null ;;
    sbsigntool) has sbverify ;;
    systemd-boot-efi) compgen -G '/usr/lib/systemd/boot/efi/*.stub' >/dev/null ;;
    *) has "$1" || [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]] ;;
    esac
}

# Nobody's own machine gets a service unasked.
welcome() { [[ $1 != @(openssh-server|postgresql|prometheus) || $(id -u) -eq 0 || -n ${CI:-} ]]; }

missing=()
for package in "$@"; do
    present "$package" || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    as_root=(sudo -n)
fi
if has apt-get && { [[ $(id -u) -eq 0 ]] || sudo -n true 2>/dev/null; }; then
    apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }
    echo "installing ${missing[*]}" >&2
    apt update >/dev/null || true # a source may be down; what is needed may still come from the others
    for package in "${missing[@]}"; do # one by one: a package that this release lacks must not keep the others out
        welcome "$package" || continue
        apt install -y --no-install-recommends "$package" >/dev/null </dev/null || true
    done
fi

for package in "${missing[@]}"; do
    present "$package" || echo "missing: $package (apt-get install $package)" >&2
done
