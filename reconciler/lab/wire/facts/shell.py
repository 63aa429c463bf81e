"""A minimal shell parser that reads the words of a fact's command up to the first operator or redirection."""

from __future__ import annotations

import shlex


def words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    for word in lexer:
        if word and set(word) <= set("();<>|&"):
            if word[0] in "<>" and found and found[-1].isdigit():
                found.pop()  # the descriptor of "2>"
            break
        found.append(word)
    return found


def operands(command: str, tool: str, *, valued: frozenset[str] = frozenset()) -> list[str]:
    """Return the arguments of `tool` without its options. `valued`: options whose value is the next word."""
    rest = words(command)
    rest = rest[rest.index(tool) + 1 :] if tool in rest else []
    found: list[str] = []
    arguments = iter(rest)
    for word in arguments:
        if word == "--":
            found += arguments
        elif word in valued:
            next(arguments, None)
        elif not word.startswith("-"):
            found.append(word)
    return found


def option(command: str, *names: str) -> str:
    """Return the value of an option, or "" without it."""
    rest = iter(words(command))
    for word in rest:
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(rest, "")
    return ""
