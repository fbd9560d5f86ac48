"""A long history, written without a simulation: producers with acknowledgements, a group, a move, a final reader."""

from __future__ import annotations

import json
from pathlib import Path

SENDS = 250_000
PARTITIONS = 16


def write(folder: Path, sends: int = SENDS) -> int:
    """Write four notes for each send, and a few more; how many."""
    folder.mkdir(parents=True)
    count = 0
    for number, cluster in enumerate(("source", "target")):
        first, last = number * sends // 2, (number + 1) * sends // 2
        with (folder / f"shop.{cluster}.jsonl").open("w") as file:
            file.write(_open("shop", cluster, number * 10**12, kind="idempotent"))
            for n in range(first, last):
                at = number * 10**12 + n * 1000
                times, key = f'"wall":{at},"mono":{at}', f"k{n % 5000}"
                file.write(
                    f'{{"event":"send",{times},"seq":{n + 1},"value":"shop-{n}","topic":"orders","key":"{key}"}}\n'
                    f'{{"event":"ack",{times},"seq":{n + 1},"partition":{n % PARTITIONS},"offset":{n // PARTITIONS}}}\n'
                )
        with (folder / f"billing.{cluster}.jsonl").open("w") as file:
            file.write(_open("billing", cluster, number * 10**12, group="billing"))
            file.write(_receipts(first, last, number * 10**12 + 500))
        count += 2 + 3 * (last - first)
    with (folder / "final.jsonl").open("w") as file:
        file.write(_open("final", "target", 10**13, final=True))
        file.write(_note("assign", 10**13, partitions=[["orders", partition, None] for partition in range(PARTITIONS)]))
        file.write(_receipts(0, sends, 10**13))
        file.write(_note("close", 10**14))
    return count + 3 + sends


def _open(client: str, cluster: str, at: int, **fields: object) -> str:
    return _note("open", at, version=1, client=client, cluster=cluster, clock="machine", **fields)


def _note(event: str, at: int, **fields: object) -> str:
    return json.dumps({"event": event, "wall": at, "mono": at, **fields}) + "\n"


def _receipts(first: int, last: int, at: int) -> str:
    return "".join(
        f'{{"event":"receipt","wall":{at + n * 1000},"mono":{at + n * 1000},"topic":"orders",'
        f'"partition":{n % PARTITIONS},"offset":{n // PARTITIONS},"value":"shop-{n}","key":"k{n % 5000}"}}\n'
        for n in range(first, last)
    )
