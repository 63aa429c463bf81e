"""Metadata of a release that no file can hold: where the repository is that builds it.

PyPI shows a project's page without its files, so links of the README lead to the tag. Anywhere else than in a release,
PROJECT_URL is not set and nothing is added.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReleaseMetadata(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        url = os.environ.get("PROJECT_URL", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if url:
            files = f"{url}/blob/v{metadata['version']}"
            text = re.sub(r"\]\((?!https?://|#)", f"]({files}/", text)
            metadata["urls"] = {
                "Source": url,
                "Documentation": f"{files}/docs/index.md",
                "Changelog": f"{files}/docs/changelog.md",
                "Issues": f"{url}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
