"""`python -m demo COMMAND`: what the Makefile calls. Each command imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from demo.brokers.commands import app as brokers
from demo.errors import run_or_explain

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The embedded default: brokers, workload, and a migration to watch.",
)
app.add_typer(brokers, name="brokers")


@app.command("setup")
def setup(
    old_brokers: Annotated[
        bool,
        typer.Option("--old-brokers", help="Fetch what tests use besides: old brokers, a schema registry."),
    ] = False,
    kerberos: Annotated[
        bool, typer.Option("--kerberos", help="Build what Kerberos clients need, and check that a KDC is installed.")
    ] = False,
) -> None:
    """Check Java; fetch the jars of jars.lock and make the class archives that are not in the cache yet."""
    from demo import jars
    from demo.brokers.releases import OLD
    from demo.java import require_java
    from demo.recording import make_archives

    typer.echo(f"Java: {require_java()}")
    for jar_set in ("kafka", "spark", *((*(release.jar_set for release in OLD), "apicurio") if old_brokers else ())):
        typer.echo(f"jars, {jar_set}: {len(jars.paths(jar_set))} verified in {jars.CACHE_DIRECTORY / jar_set}")
    for line in make_archives():
        typer.echo(line)
    if kerberos:
        from demo.kerberos import set_up

        set_up()
        typer.echo("Kerberos: a KDC and gssapi are there")


@app.command("run")
def run(
    directory: Annotated[Path | None, typer.Option(help="Where the run keeps its data; new, below .run/.")] = None,
    reports: Annotated[Path | None, typer.Option(help="Where the report goes; reports/ of the checkout.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="Both clusters behind TLS, credentials and ACLs.")] = False,
    kerberos: Annotated[bool, typer.Option("--kerberos", help="Both clusters behind Kerberos and ACLs.")] = False,
    installed: Annotated[
        bool, typer.Option("--installed", help="Airflow runs the wheel, on two workers that share no folder.")
    ] = False,
) -> None:
    """Migrate a live workload between two clusters, from start to report; exit code 0 if nothing was lost."""
    from demo import commands

    if kerberos and (secure or installed):
        raise typer.BadParameter("--kerberos goes with neither --secure nor --installed")
    raise typer.Exit(
        commands.run_demo(directory=directory, reports=reports, secure=secure, kerberos=kerberos, installed=installed)
    )


@app.command("full")
def full(
    directory: Annotated[Path | None, typer.Option(help="Where the run keeps its data; new, below .run/.")] = None,
    per_second: Annotated[
        int | None, typer.Option(min=12, help="Records of all producers together; fewer for a busy machine.")
    ] = None,
) -> None:
    """Move producers and groups in waves, and a wave back, by commands; exit code 0 if the judge finds nothing."""
    from demo import commands

    raise typer.Exit(commands.run_full(directory=directory, per_second=per_second))


@app.command("up")
def up(
    airflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Airflow's UI.")] = 8080,
) -> None:
    """The same in the background, with the approvals left to you in Airflow's UI."""
    from demo import commands

    typer.echo(commands.up(airflow_port=airflow_port))


@app.command("down")
def down() -> None:
    """End what `up` started, and nothing else."""
    from demo import commands

    typer.echo(commands.down())


@app.command("keep", hidden=True)
def keep(airflow_port: Annotated[int, typer.Option()] = 8080) -> None:
    """The background process of `up`."""
    from demo import commands

    raise typer.Exit(commands.keep(airflow_port=airflow_port))


if __name__ == "__main__":
    run_or_explain(app)
