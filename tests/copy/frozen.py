"""A mirror in a process of its own, so that it can be stopped and woken: ``python -m tests.copy.frozen``.

It prints what it tells, and at last how it ended; a test reads that from a file.
"""

import json
import subprocess
import sys
from pathlib import Path

from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.handlers import no_handler
from kafka_migration.state.link import LinkState
from tests.copy.bench import SHORT, Bench
from tests.handlers import by_offset, for_all
from tests.proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]


class Elsewhere:
    """A mirror of `it`'s link in another process."""

    def __init__(
        self, it: Bench, log: Path, proxy: Proxy | None = None, *, handled: bool = False, **limits: int
    ) -> None:
        orders = {
            "link": it.link.name,
            "topics": dict(it.topics),
            "source": it.source,
            "target": it.target,
            "proxy": proxy.url if proxy else None,
            "limits": limits,
            "handled": handled,
        }
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.copy.frozen", json.dumps(orders)], stdout=out, stderr=out, cwd=ROOT
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> "Elsewhere":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(180)


class _Through:
    def __init__(self, url: str) -> None:
        self.url = url


def main() -> int:
    orders = json.loads(sys.argv[1])
    link = LinkState.on_target(orders["link"], {"bootstrap.servers": orders["target"]})
    it = Bench(link, orders["topics"], orders["source"], orders["target"])
    limits = Limits(progress_seconds=0.1, command_seconds=0.1, **SHORT, **orders["limits"])
    mirror = it.mirror(
        settings=Settings(
            streams=1,
            epoch_seconds=60,
            limits=limits,
            handler_of=for_all(by_offset) if orders["handled"] else no_handler,
        ),
        target_through=_Through(orders["proxy"]) if orders["proxy"] else None,  # type: ignore[arg-type]
        log=lambda text: print(text, flush=True),
    )
    try:
        print(f"ended: {mirror.run(until_caught_up=True)}", flush=True)
    except MigrationError as error:
        print(f"ended: {type(error).__name__}: {error}", flush=True)
        return error.exit_code
    finally:
        link.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
