"""Inventories that know the nodes already: each is read into rows, and rows become nodes of a spec in one place.

sources   where an inventory is, and who reads it
fields    a document's values, and the cells of a row
ansible   hosts of `ansible-inventory --list`
netbox    devices of NetBox's REST API
ironic    nodes of Ironic's REST API
metal3    BareMetalHost objects
terraform resources of a state
maas      machines of MAAS
"""
