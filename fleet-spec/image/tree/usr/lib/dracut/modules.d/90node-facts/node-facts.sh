#!/bin/sh
# Runs in the initrd when root is mounted, before it becomes /.
#
# The installer leaves what is this node's alone on the partition `state` of the disk that root is on. A root under
# dm-verity can't be written, so /etc gets a layer in memory that has these facts; all else in it is the image's, and
# what is changed there is gone after a reboot. /var keeps what is written, on `state`.

FACTS="hostname machine-id reconciler resolv.conf ssh systemd/network"

# Print the name of the disk that root is on.
disk_of_root() {
    while read -r device where _; do
        [ "$where" != /sysroot ] || root=$(readlink -f "$device")
    done < /proc/self/mounts
    root=${root##*/}
    for slave in "/sys/class/block/$root/slaves/"*; do # dm-verity: root is made of partitions of one disk
        [ ! -e "$slave" ] || root=${slave##*/}
    done
    readlink -f "/sys/class/block/$root/.."
}

# Mount the partition called $1 of that disk at /$1, if there is one. A partition of this name on another disk is not ours.
mount_beside_root() {
    for uevent in "$disk"/*/uevent; do
        if grep -qsx "PARTNAME=$1" "$uevent"; then
            uevent=${uevent%/uevent}
            mount -t ext4 -o nodev,nosuid "/dev/${uevent##*/}" "/sysroot/$1"
            return
        fi
    done
    return 1
}

# Lay a directory $2 over /sysroot/$1.
cover() {
    mkdir -p "$2/upper" "$2/work"
    mount -t overlay -o "lowerdir=/sysroot/$1,upperdir=$2/upper,workdir=$2/work" "overlay-$1" "/sysroot/$1"
}

disk=$(disk_of_root)
if mount_beside_root state; then
    mkdir -p /sysroot/state/etc
    [ -s /sysroot/state/etc/machine-id ] || tr -d - < /proc/sys/kernel/random/uuid > /sysroot/state/etc/machine-id
    cover etc /run/etc
    for fact in $FACTS; do
        if [ -e "/sysroot/state/etc/$fact" ]; then
            into=/sysroot/etc/$fact
            mkdir -p "${into%/*}"
            cp -a --remove-destination "/sysroot/state/etc/$fact" "${into%/*}/"
        fi
    done
    cover var /sysroot/state/var
elif ! [ -w /sysroot/etc ]; then # an image that was never installed: all is forgotten when it ends
    cover etc /run/etc
    cover var /run/var
fi
mount_beside_root data || :
