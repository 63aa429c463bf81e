"""The simulated fleet: a sans-I/O hardware model, served over the network or in process.

hardware/   the state and behaviour of a machine: power, POST, media, BIOS, firmware, disks, images, GPUs, faults
wire/       servers on loopback: Redfish over HTTPS, SSH, a Kubernetes API, the control socket
inprocess/  the same machines behind model/ports.py, for thousands of nodes under virtual time
scenario    how nodes differ at the start, and the expected end

The lab is independent of the planner: it imports `model` and `spec`, never `planner`, `converge` or `drivers`.
"""
