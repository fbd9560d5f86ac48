"""executors: the environment of Spark's executors on other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_migration.cli.options import Debug, DryRun, Json
from kafka_migration.cli.output import Output


def executors(
    output_file: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="The archive to write, in a folder that only you may write to."),
    ] = Path("executors.tar.gz"),
    image: Annotated[
        bool, typer.Option("--image", help="Write nothing; print the line that an image of the executors needs.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Pack what Spark's executors on other machines need, and print the configs that bring it there."""
    from kafka_migration.steps import executors as packed

    output, versions, size = Output(as_json=as_json), packed.versions(), None
    if not output_file.name.endswith((".tar.gz", ".tgz")):
        raise typer.BadParameter("Spark unpacks files named .tar.gz or .tgz", param_hint="--output")
    if image:
        output.result(
            {"packages": versions, "python": packed.python(), "image": packed.image_line()}, packed.image_line()
        )
        return
    if not dry_run:
        size = packed.write_archive(output_file)
    conf, variable = packed.spark_conf(output_file), {"PYSPARK_PYTHON": packed.python()}
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    output.log(f"{'would be written' if dry_run else 'written'}: {output_file}, with {packages}")
    output.result(
        {"archive": str(output_file), "bytes": size, "packages": versions, "spark": conf, "environment": variable}
        | {"dry_run": dry_run},
        "# spark-defaults.conf, where the driver runs:",
        *(f"{key} {value}" for key, value in conf.items()),
        "# environment of the driver; the workers' interpreter:",
        *(f"{key}={value}" for key, value in variable.items()),
    )
