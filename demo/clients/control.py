"""The clients' control: what the plan's hooks run to stop and start them. A thin client of the supervisor.

    demo-consumers stop  GROUP [--cluster source|target] [--run-directory DIRECTORY]
    demo-consumers start GROUP [--cluster source|target] [--run-directory DIRECTORY]
    demo-consumers status

Exit code: 0 done, or it was so already; 1 it could not be done; 2 bad arguments; 3 no workload answers.
Standard library only: a hook runs with whatever Python it finds.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from demo.errors import DemoError

RUN_DIRECTORY_VARIABLE = "DEMO_RUN_DIRECTORY"
CONTROL_FILE = "control.json"
"""In the run directory: where the supervisor's socket is, and where it is called by HTTP. Not the socket itself, whose
path may have 107 bytes only."""

DEFAULT_CLUSTER = {"stop": "source", "start": "target"}
HOOK_TOKEN_VARIABLE = "DEMO_HOOK_TOKEN"
"""In the supervisor's environment: what a hook's call by HTTP has to bring."""
ANSWER_SECONDS = 180.0


class ControlError(DemoError):
    """The supervisor refused, or did as told without success."""

    exit_code = 1


class NoWorkloadError(ControlError):
    """No supervisor answers for this run directory."""

    exit_code = 3


def ask(run_directory: Path, request: dict[str, Any], *, timeout_seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Send one request to the supervisor of a run and return its answer.

    Raises:
        NoWorkloadError: none runs, or it did not answer in time.
        ControlError: it answered that it could not.
    """
    control = run_directory / CONTROL_FILE
    try:
        address = json.loads(control.read_text())["socket"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        raise NoWorkloadError(
            f"no workload answers for {run_directory} ({error}). Start it, or name the right run directory by"
            f" --run-directory or {RUN_DIRECTORY_VARIABLE}."
        ) from error
    if not line:
        raise NoWorkloadError(f"the workload of {run_directory} ended before it answered; see its logs directory.")
    answer: dict[str, Any] = json.loads(line)
    if not answer["ok"]:
        raise ControlError(answer["message"])
    return answer


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="demo-consumers", description="Stop and start the demo's consumer groups.")
    # After the verb, where a person expects it.
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--run-directory", type=Path, help=f"of the workload; default: ${RUN_DIRECTORY_VARIABLE}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, cluster in DEFAULT_CLUSTER.items():
        command = verbs.add_parser(verb, parents=[common], help=f"{verb} a group's members on the {cluster}")
        command.add_argument("group")
        command.add_argument("--cluster", choices=("source", "target"), default=cluster)
    verbs.add_parser("status", parents=[common], help="print what runs, as JSON")
    options = parser.parse_args(arguments)
    directory = options.run_directory or os.environ.get(RUN_DIRECTORY_VARIABLE)
    if not directory:
        parser.error(f"no run directory: give --run-directory or set {RUN_DIRECTORY_VARIABLE}")
    request = {"do": options.verb}
    if options.verb in DEFAULT_CLUSTER:
        request = {"do": f"{options.verb}-group", "group": options.group, "cluster": options.cluster}
    try:
        answer = ask(Path(directory), request)
    except ControlError as error:
        print(f"demo-consumers: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(answer["status"], indent=1) if options.verb == "status" else answer["message"])
    return 0
