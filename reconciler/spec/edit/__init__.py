"""Edit a spec that a person wrote, and keep all other text to the byte.

table      one CSV inventory: set a cell, remove a row
files      all files of a spec, before and after the edits
accept     write values of nodes where they change nothing for other nodes

YAML files are edited by strict_yaml.edit. Nothing here reads or writes a file.
"""
