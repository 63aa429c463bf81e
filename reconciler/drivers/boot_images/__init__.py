"""Build what firmware boots: unified kernel images (uki), the installer's initrd (initrd) and its boot medium (iso)."""
