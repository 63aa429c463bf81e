"""Edits of a spec that a person wrote: text -> text, and what is not meant stays as it is, to the byte.

yaml_text  one YAML file: set a value, append to a list, split an entry of a list
table      one CSV inventory: set a cell, take a row out
files      all files of a spec, as they were and as they shall be
accept     the values of nodes, put where they change nothing for other nodes

Nothing here reads or writes a file.
"""
