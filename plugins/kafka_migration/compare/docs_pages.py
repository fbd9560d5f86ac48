"""How Data Docs look: Great Expectations' own contents in pages that need no other file and no script.

Its own pages load styles and scripts from five hosts, and fill the list of runs by script: without internet, and where
a policy forbids it, they are bare, and that list is empty. Great Expectations makes these classes by their names.
"""

from __future__ import annotations

from typing import Any

from great_expectations.render.view import view  # noqa: TID253  # its own process imports this, and nobody else
from jinja2 import ChoiceLoader, PackageLoader

#: What Great Expectations is configured with: see :func:`site_pages`.
_VIEW = {"module_name": __name__, "class_name": "Page"}


class Page(view.DefaultJinjaPageView):
    """Any page. Templates of ours take the place of those of the same name."""

    _template = "docs_page.j2"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        own = PackageLoader("kafka_migration", "templates/data_docs")
        # The style is the one of all our pages.
        self.env.loader = ChoiceLoader([own, PackageLoader("kafka_migration"), *filter(None, [self.env.loader])])


def site_pages() -> dict[str, Any]:
    """Of a site's configuration, what has its pages look like this."""
    return {
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": dict(_VIEW)},
        "site_section_builders": {name: {"view": dict(_VIEW)} for name in ("expectations", "validations")},
        "show_how_to_buttons": False,
    }
