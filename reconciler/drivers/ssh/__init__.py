"""A node's operating system over SSH: one connection per pass, facts as data, commands with deadlines."""

from reconciler.drivers.ssh.host import SshHost
from reconciler.drivers.ssh.kernel_log_watch import KernelLogWatch

__all__ = ["KernelLogWatch", "SshHost"]
