"""Servers on loopback that speak what a fleet speaks: Redfish over HTTPS, SSH, a Kubernetes API."""
