"""A node's operating system over SSH: one connection per pass, facts as data, commands with deadlines."""

from reconciler.drivers.ssh.host import SshHost

__all__ = ["SshHost"]
