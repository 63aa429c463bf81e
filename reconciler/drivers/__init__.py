"""Access to the outside world: BMCs, hosts, clusters, git, forges, the ledger, secrets.

Third-party I/O libraries are imported only here and in lab/.
"""
