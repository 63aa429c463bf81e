"""Replies to commands in comments: what came of one, or which there are."""

from __future__ import annotations

from typing import Final

from reconciler.model.forge_commands import WORD
from reconciler.render.markdown import CHARACTERS, MarkdownWriter, write
from reconciler.render.text import code, markdown

_HELP: Final = (
    (f"{WORD} plan", "plan this change again, at its newest commit"),
    (f"{WORD} hold NODE REASON", "forbid actions on a node until somebody releases it"),
    (f"{WORD} explain NODE", "what is wanted of a node, what was found, and what it waits for"),
)


def help_reply(problem: str) -> str:
    """Return which commands there are, and why what was written is none of them."""
    rows = "\n".join(f"- {code(command)}: {markdown(what)}" for command, what in _HELP)
    return (
        f"**Nothing was done: {markdown(problem)}.** A comment that begins with one of these is a command:\n\n{rows}\n"
    )


def refusal_reply(command: str, why: str) -> str:
    return f"**{code(f'{WORD} {command}')}: nothing was done.** {markdown(why, 400)}\n"


def output_reply(command: str, account: str, output: str, *, failed: bool, run_url: str) -> str:
    """Return what a command printed, as a block in which nothing formats or mentions anybody."""

    def body(writer: MarkdownWriter) -> None:
        end = "failed" if failed else "done"
        writer.raw(f"**{code(f'{WORD} {command}')}, asked by {markdown(account)}: {end}.**")
        if output.strip():
            writer.log(output)
        writer.links(run_url)

    return write(body, "the log of the run has all of it", most=CHARACTERS).text
