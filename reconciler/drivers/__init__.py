"""Everything that speaks to the world outside: BMCs, hosts, clusters, git, the ledger, secrets.

Third-party I/O libraries are imported here (and in lab/) alone.
"""
