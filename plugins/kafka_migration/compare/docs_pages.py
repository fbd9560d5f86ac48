"""How Data Docs look: Great Expectations' own contents in pages that need no other file and no script.

Its own pages load styles and scripts from five hosts, and fill the list of runs by script: without internet, and where
a policy forbids it, they are bare, and that list is empty.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: What Great Expectations is configured with: it looks the class up in this module.
_VIEW = {"module_name": __name__, "class_name": "Page"}


def site_pages() -> dict[str, Any]:
    """Of a site's configuration, what has its pages look like this."""
    return {
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": dict(_VIEW)},
        "site_section_builders": {name: {"view": dict(_VIEW)} for name in ("expectations", "validations")},
        "show_how_to_buttons": False,
    }


def __getattr__(name: str) -> Any:
    # Not before it is asked for: executors load this package, and lack that library.
    if name == "Page":
        return _page_class()
    raise AttributeError(name)


def _page_class() -> type:
    from jinja2 import ChoiceLoader, PackageLoader

    view: Any = import_module("great_expectations.render.view.view")

    class Page(view.DefaultJinjaPageView):  # type: ignore[misc]  # of a library without types
        """Any page. Templates of ours take the place of those of the same name."""

        _template = "docs_page.j2"

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            own = PackageLoader("kafka_migration", "templates/data_docs")
            # The style is the one of all our pages.
            self.env.loader = ChoiceLoader([own, PackageLoader("kafka_migration"), self.env.loader])

    return Page
