"""Groups of subcommands whose help says of each the whole first sentence, where click cuts it off in its middle."""

from __future__ import annotations

import click

_WHOLE = 1000  # characters: click ends a summary at the first sentence anyway


class Group(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            named = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
            formatter.write_dl([(name, one.get_short_help_str(_WHOLE)) for name, one in named if one is not None])
