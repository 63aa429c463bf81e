"""Helm releases of a cluster, with the installed helm."""

from reconciler.drivers.helm.releases import HelmReleases

__all__ = ["HelmReleases"]
