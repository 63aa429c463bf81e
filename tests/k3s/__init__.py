"""The life of a K3s cluster of twelve nodes over real sshd: `make e2e-k3s`. Nothing here runs in the suite."""
