"""Pages of made-up fleets, and the system's own Chromium to open them in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from reconciler.render.html import Material, page
from tests.html import hostile, world

Opened = Callable[..., Page]


@dataclass
class Pages:
    """What is shown, and where it stands."""

    fleet: Material  # more nodes than have room for their names
    small: Material
    declined: str  # a node of the page "declined"
    files: dict[str, Path] = field(default_factory=dict)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Made before a browser is started: its loop runs for as long as it is open, and lab machines need one, too."""
    fleet = world.make(320)
    declining, name = world.declining(fleet)
    made = Pages(fleet, world.without_racks(world.make(60), "inference-1"), name)
    texts = {"fleet": made.fleet, "small": made.small, "hostile": hostile.spoilt(made.small), "many": world.make(1510)}
    texts["declined"] = declining
    directory = tmp_path_factory.mktemp("pages")
    for name, material in texts.items():
        made.files[name] = directory / f"{name}.html"
        made.files[name].write_text(page(material), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def browser(pages: Pages) -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, pages: Pages) -> Iterator[Opened]:
    """Opens one of the pages. Whatever went wrong in it, or was asked of the network, fails the test."""
    wrong: list[str] = []
    contexts = []

    def open_page(name: str = "fleet", fragment: str = "", *, width: int = 1280, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda said: wrong.append(f"{said.type}: {said.text}") if said.type != "log" else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        own = pages.files[name].as_uri()
        tab.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(own) else None)
        tab.goto(own + fragment)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
