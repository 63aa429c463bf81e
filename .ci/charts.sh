#!/usr/bin/env bash
# Fetches the libraries of the live page's charts from npm, which checks each against the digest that the registry has
# for it, and writes them with their licences and digests into the package. They are taken as they are.
#   usage: .ci/charts.sh
set -euo pipefail

kept=$PWD/reconciler/render/html/live_kept
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

take() { # package@version, file in dist/, name of the licence
    local packed
    packed=$(cd "$work" && npm pack --silent "$1")
    mkdir -p "$work/$2.d"
    tar -xzf "$work/$packed" -C "$work/$2.d"
    cp "$work/$2.d/package/dist/$2" "$kept/$2"
    cp "$work/$2.d/package/LICENSE" "$kept/LICENSE.$3"
}

take d3@7.9.0 d3.min.js d3
take @observablehq/plot@0.6.17 plot.umd.min.js plot
cd "$kept"
sha256sum LICENSE.d3 LICENSE.plot d3.min.js plot.umd.min.js >SHA256SUMS
