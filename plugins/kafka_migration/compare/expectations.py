"""The verdict once more, through a Great Expectations suite, with Data Docs that a person can open.

``python -m kafka_migration.compare.expectations SUMMARY.json DIRECTORY`` writes the Data Docs into DIRECTORY
(index.html) and one line of JSON to standard output. Exit code 0 if every expectation is met, 1 if not. A process of
its own, because importing the library takes seconds and 200 MB.

The suite sees the summary's columns and derives its verdict from them, so that it would contradict ours if that were
wrong; the caller takes the two for equal only if both are of that verdict.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from kafka_migration.compare.result import Equality
from kafka_migration.compare.summary import COLUMNS

SITE = "validation"
RESULTS = "results"
"""Of a site, the directory with the runs' results as JSON, from which its index is built."""
_KEPT_RUNS = 99
#: What draws the pages, by the name that this module has where it is no command.
_VIEW = {"module_name": "kafka_migration.compare.expectations", "class_name": "Page"}


def main(arguments: Sequence[str]) -> int:
    """The command line. Returns the exit code."""
    if len(arguments) != 2:
        print("usage: python -m kafka_migration.compare.expectations SUMMARY.json DIRECTORY", file=sys.stderr)
        return 2
    found = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    # The library imports what it finds of these, for more than a second, and works with pandas alone here.
    for name in ("pyspark", "sqlalchemy"):
        sys.modules[name] = None  # type: ignore[assignment]
    # The library prints progress; standard output is for our answer.
    with redirect_stdout(sys.stderr):
        answer = validate(found, Path(arguments[1]))
    print(json.dumps(answer), flush=True)
    return 0 if answer["success"] else 1


def validate(summary: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Run the suite over ``summary``, and add a page to the Data Docs in ``directory``, which keep the newest runs.

    Returns ``success``, and ``failed``: the expectations that were not met, in words.
    """
    # Before the import: it would report its use over the network otherwise.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import pandas

    gx: Any = import_module("great_expectations")

    # Explicit kinds: a column of nothing but nulls has none of its own.
    frame = pandas.DataFrame(summary["rows"], columns=list(COLUMNS)).astype(
        {name: "Int64" for name in COLUMNS if name.endswith(("_records", "_offsets", "_segments", "_seconds"))}
    )
    with replaced(directory) as part:
        return _run(gx, summary, frame, part)


def _run(gx: Any, summary: dict[str, Any], frame: Any, part: Path) -> dict[str, Any]:
    context = gx.get_context(mode="ephemeral", project_config=_project(part / RESULTS))
    # Progress bars belong to notebooks.
    context.variables.progress_bars = {"globally": False}
    context.add_data_docs_site(
        site_name=SITE,
        site_config={
            "class_name": "SiteBuilder",
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": dict(_VIEW)},
            "site_section_builders": {section: {"view": dict(_VIEW)} for section in ("expectations", "validations")},
            "show_how_to_buttons": False,
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(part.resolve())},
        },
    )
    name = f"{summary['migration']}-validation"
    batch = (
        context.data_sources.add_pandas("summary").add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
    )
    suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=expectations(summary)))
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(
            name=name,
            validation_definitions=[definition],
            actions=[gx.checkpoint.UpdateDataDocsAction(name="data docs", site_names=[SITE])],
            result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["partition"]},
        )
    )
    outcome = checkpoint.run(
        batch_parameters={"dataframe": frame},
        run_id=gx.RunIdentifier(run_name=" ".join(filter(None, (summary["migration"], summary["at"], summary["of"])))),
    )
    if any("<script" in page.read_text(encoding="utf-8") for page in (part / "validations").rglob("*.html")):
        # Pages of a version before, which need other hosts.
        context.build_data_docs(site_names=[SITE])
    results = [one for run in outcome.run_results.values() for one in run.results]
    failed = [
        str((one.expectation_config.meta or {}).get("says", one.expectation_config.type))
        for one in results
        if not one.success
    ]
    return {"success": bool(outcome.success), "failed": failed, "expectations": len(results)}


def __getattr__(name: str) -> Any:
    # Great Expectations looks it up by its name; not before, since executors load this package, and lack that library.
    if name == _VIEW["class_name"]:
        return _page()
    raise AttributeError(name)


def _page() -> type:
    """Pages of the site, of the library's own contents: its own need styles and scripts of five other hosts, and fill
    the list of runs by script, so that without internet it is empty."""
    from jinja2 import ChoiceLoader, PackageLoader

    view: Any = import_module("great_expectations.render.view.view")

    class Page(view.DefaultJinjaPageView):  # type: ignore[misc]  # of a library without types
        _template = "docs_page.j2"

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            # Ours take the place of those of the same name; the style is the one of all our pages.
            own = PackageLoader("kafka_migration", "templates/data_docs")
            self.env.loader = ChoiceLoader([own, PackageLoader("kafka_migration"), self.env.loader])

    return Page


def _project(results: Path) -> Any:
    """A project in memory, but for the results of its runs: the site's index lists those that are kept."""
    base: Any = import_module("great_expectations.data_context.types.base")
    config = base.DataContextConfig(
        store_backend_defaults=base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False), analytics_enabled=False
    )
    config.stores[config.validation_results_store_name]["store_backend"] = {
        "class_name": "TupleFilesystemStoreBackend",
        "base_directory": str(results.resolve()),
        "filepath_suffix": ".json",
    }
    return config


@contextmanager
def replaced(directory: Path) -> Iterator[Path]:
    """A copy of the site in ``directory``, which takes its place at the end of the block: whoever reads meanwhile sees
    the old pages, then the new ones. One after the other, so that of two runs each finds what the other has added.

    Whatever dies, and whenever, the next one finds a whole site, and removes what was left beside it.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    part, before = (directory.with_name(f".{directory.name}.{name}") for name in ("new", "old"))
    lock = directory.with_name(f".{directory.name}.lock")
    # Let go of by closing the file, which the end of a process does, too.
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if before.is_dir() and not directory.exists():
            os.rename(before, directory)
        for left in directory.parent.glob(f".{directory.name}.*"):
            if left != lock:
                shutil.rmtree(left)
        part.mkdir()
        _take_over(directory, part)
        yield part
        # A directory cannot take the place of one that is not empty. Nothing is removed before the new one stands.
        if directory.exists():
            os.rename(directory, before)
        os.rename(part, directory)
        shutil.rmtree(before, ignore_errors=True)


def _take_over(directory: Path, part: Path) -> None:
    """Copy the site as it is into ``part``, without the oldest runs. The library removes pages without a result."""
    for name in (RESULTS, "validations", "expectations", "static"):
        if (directory / name).is_dir():
            shutil.copytree(directory / name, part / name)
    runs = sorted((part / RESULTS).rglob("*.json"), key=lambda run: run.relative_to(part).as_posix())
    for old in runs[:-_KEPT_RUNS]:
        old.unlink()


def expectations(summary: dict[str, Any]) -> list[Any]:
    """The suite for a summary, of which ``partitions`` and ``limits`` are looked at."""
    gxe: Any = import_module("great_expectations.expectations")

    def expect(kind: Any, claim: str, **arguments: Any) -> Any:
        return kind(**arguments, meta={"says": claim}, notes=claim)

    def equal(left: str, right: str, claim: str) -> Any:
        # A pair of nulls is not equal: nothing was read.
        columns = {"column_A": left, "column_B": right, "ignore_row_if": "neither"}
        return expect(gxe.ExpectColumnPairValuesToBeEqual, claim, **columns)

    def known(column: str) -> Any:
        return expect(gxe.ExpectColumnValuesToNotBeNull, f"{column} is known in every partition", column=column)

    def at_most(column: str, limit: float, claim: str) -> Any:
        return expect(gxe.ExpectColumnValuesToBeBetween, claim, column=column, min_value=0, max_value=limit)

    limits, equal_only = summary["limits"], [str(Equality.EQUAL)]
    return [
        expect(gxe.ExpectTableRowCountToEqual, "there is a row for every partition", value=summary["partitions"]),
        expect(gxe.ExpectColumnValuesToBeUnique, "no partition stands twice", column="partition"),
        *(known(column) for column in ("source_records", "target_records", "source_sum", "target_sum")),
        *(known(column) for column in ("source_ordered_sum", "target_ordered_sum")),
        equal("source_records", "target_records", "counts of source and target are equal"),
        equal("source_records", "expected_records", "as many records were read as the offset map has"),
        equal("source_sum", "target_sum", "order-independent sums of source and target are equal"),
        equal("source_ordered_sum", "target_ordered_sum", "order-dependent sums of source and target are equal"),
        equal("covered_offsets", "pinned_offsets", "the segments cover everything that was pinned"),
        at_most("unequal_segments", 0, "no segment is unequal"),
        at_most("lag_offsets", 0, "the mirror has reached every pinned end"),
        at_most("unstable_offsets", 0, "committed consumers can read the target up to every pinned end"),
        at_most("age_seconds", limits["age_seconds"], "nothing was read longer ago than validation.reread_seconds"),
        at_most("pinned_seconds", limits["pinned_seconds"], "pinned no longer ago than validation.max_age_seconds"),
        expect(gxe.ExpectColumnValuesToBeInSet, "every partition is EQUAL", column="verdict", value_set=equal_only),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
