#!/bin/bash
# dracut runs it as it makes the initrd.

check() { return 255; } # only where it is named in add_dracutmodules

install() {
    inst_multiple cp grep mkdir mount readlink tr
    inst_hook pre-pivot 50 "$moddir/node-facts.sh"
}
