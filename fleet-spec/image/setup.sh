#!/bin/sh
# Runs inside the image, once its packages and the files of tree/ are there.
set -eu

systemctl enable systemd-networkd ssh
systemctl add-requires boot-complete.target ssh.service # a node without SSH did not come up
systemctl mask systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer
ln -sf /usr/share/systemd/tmp.mount /etc/systemd/system/tmp.mount
systemctl enable tmp.mount

# What is a node's own is made on the node.
rm -f /etc/ssh/ssh_host_*
: > /etc/fstab
: > /etc/machine-id
mkdir -p /state /data /efi
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt /var/cache/ldconfig/aux-cache
