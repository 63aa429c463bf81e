"""Strict YAML whose every key and value has a position: for the spec, and for the files beside it.

parse       text -> documents; plain YAML 1.2 values alone, bounded against files that expand without end
characters  which characters a text may have
models      the strict model of a file, and checked texts
read        a document -> a model, or every problem of it with its line
edit        set values in a file and keep the rest of its text to the byte

A file may come from anybody's pull request: nothing in it is run, and nothing it refers to is opened.
"""
