"""`python -m tests.machine.image_server DIR ADDRESS PORT`: a web server of files, as any fleet has one, with Range."""

from __future__ import annotations

import sys

from aiohttp import web


def main(folder: str, address: str, port: str) -> None:
    app = web.Application()
    app.router.add_static("/", folder)
    web.run_app(app, host=address, port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
