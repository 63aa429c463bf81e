"""Servers on loopback for the protocols of a fleet: Redfish over HTTPS, SSH, a Kubernetes API."""
