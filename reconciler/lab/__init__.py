"""The embedded fleet: a sans-I/O hardware model with two servers.

hardware/   what a machine is and does: power, POST, media, BIOS, firmware, disks, images, GPUs, faults
wire/       servers on loopback: Redfish over HTTPS, SSH, a Kubernetes API, the control socket
inprocess/  the same machines behind model/ports.py, for thousands of nodes under virtual time
scenario    how nodes differ at the start, and what the end must be

The lab is written apart from the planner: it imports `model` and `spec`, never `planner`, `converge` or `drivers`.
"""
