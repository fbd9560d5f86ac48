"""`python -m demo brokers up|down|status`, also as `python -m demo.brokers`."""

from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Two standing single-node Kafka clusters on 127.0.0.1."
)


@app.command("up")
def up(
    source_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the source cluster.")] = 19092,
    target_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the target cluster.")] = 29092,
) -> None:
    """Start both clusters and leave them running. Data that an earlier `down --keep-data` left is taken up again."""
    from demo.brokers import standing

    addresses = (
        standing.Address(name="source", port=source_port),
        standing.Address(name="target", port=target_port),
    )
    typer.echo("\n".join(standing.up(addresses)))


@app.command("down")
def down(
    keep_data: Annotated[bool, typer.Option(help="Keep topics and offsets for the next `up`.")] = False,
) -> None:
    """End the clusters that `up` started, and nothing else."""
    from demo.brokers import standing

    typer.echo("\n".join(standing.down(keep_data=keep_data)))


@app.command("status")
def status(
    any_cluster: Annotated[bool, typer.Option("--any", help="Be content with one that runs.")] = False,
) -> None:
    """Say which clusters run, and where; exit code 1 unless both do."""
    from demo.brokers import standing

    found = standing.status()
    for name in ("source", "target"):
        record = found.get(name)
        typer.echo(f"{name}: {'down' if record is None else f'up at port {record.port}, pid {record.pid}'}")
    running = [found.get(name) is not None for name in ("source", "target")]
    if not (any(running) if any_cluster else all(running)):
        raise typer.Exit(1)
