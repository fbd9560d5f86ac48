"""`python -m demo COMMAND`: what the Makefile calls. Each command imports what it needs when it runs."""

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
def setup() -> None:
    """Check Java, and fetch the jars of jars.lock that are not in the cache yet."""
    from demo import jars
    from demo.java import require_java

    typer.echo(f"Java: {require_java()}")
    for jar_set in ("kafka", "spark"):
        typer.echo(f"jars, {jar_set}: {len(jars.paths(jar_set))} verified in {jars.CACHE_DIRECTORY / jar_set}")


if __name__ == "__main__":
    run_or_explain(app)
