"""init: a plan, connections and an approval key, from the addresses of two clusters."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_migration.cli.asking import can_be_asked
from kafka_migration.cli.options import Debug, DryRun, Json
from kafka_migration.cli.output import Output, write_new
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.direction import SOURCE, TARGET, Side
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.inventory.preflight import Preflight
    from kafka_migration.inventory.proposal import Proposal

_KEY = "approval.key"
_HOW = "wait, systemd, kubernetes or an http(s) URL"
#: Programs, as a hook calls them, by how consumers are stopped and started.
_COMMANDS = {
    "systemd": (["systemctl", "stop", "{group}-{cluster}"], ["systemctl", "start", "{group}-{cluster}"]),
    "kubernetes": (
        ["kubectl", "scale", "deployment/{group}-{cluster}", "--replicas=0"],
        ["kubectl", "scale", "deployment/{group}-{cluster}", "--replicas=1"],
    ),
}


def _cluster(name: str) -> Any:
    return typer.Option(
        name, metavar="ADDRESS|ID", help="HOST:PORT, more with commas, or the id of a connection.", show_default=False
    )


def _config(name: str, cluster: str) -> Any:
    return typer.Option(
        name, metavar="FILE", help=f"Client properties for {cluster}, as for --command-config.", show_default=False
    )


def init(
    command: typer.Context,
    plan: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN", help="The plan file to write, such as shop.yaml of a migration shop.", show_default=False
        ),
    ],
    source: Annotated[str | None, _cluster("--source")] = None,
    source_config: Annotated[Path | None, _config("--source-config", "--source")] = None,
    target: Annotated[str | None, _cluster("--target")] = None,
    target_config: Annotated[Path | None, _config("--target-config", "--target")] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Topics to mirror; may be given again. (default: all of applications)",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Groups to move; may be given again. (default: all that read these topics)",
            show_default=False,
        ),
    ] = None,
    consumers: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help=f"How consumers are stopped and started: {_HOW}. (default: wait, a person does it)",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Propose a plan from what two clusters hold, check it, and write it. Asks for what is not given."""
    from kafka_migration.inventory import preflight
    from kafka_migration.inventory.proposal import Wish, propose
    from kafka_migration.migration.context import open_context
    from kafka_migration.migration.joined import joined

    output = Output(as_json=as_json)
    variables, key = _before(plan, dry_run=dry_run)
    answers = _Answers(output.log, is_asked=can_be_asked() and not as_json)
    ids: dict[Side, str] = {}
    options: Mapping[Side, tuple[str | None, Path | None]] = {
        SOURCE: (source, source_config),
        TARGET: (target, target_config),
    }
    for side, (given, config) in options.items():
        ids[side], found = _connection(answers, plan.stem, side, given, config)
        variables |= found
    topics = answers.patterns("Topics to mirror, as patterns (empty: all of applications)", topic, "--topic")
    groups = answers.patterns("Groups to move, as patterns (empty: all that read these topics)", group, "--group")
    hooks, allowed = _hooks(answers.text(f"How consumers are stopped and started: {_HOW}", consumers, default="wait"))
    variables |= {name: value for name, value in allowed.items() if not os.environ.get(name)}
    if ids[SOURCE].upper() == ids[TARGET].upper():
        raise BadInput("is the source", field="--target", value=ids[TARGET], remedy="give another cluster")
    wish = Wish(name=plan.stem, source=ids[SOURCE], target=ids[TARGET], topics=topics, groups=groups, consumers=hooks)
    with _set(variables), open_context(wish.plan(), log=output.log, dry_run=dry_run, to_check=True) as ctx:
        if joined(ctx) is not None:
            raise Refused(
                f"a migration {plan.stem} has begun on this target",
                remedy="give the file another name, which will be the migration's; or go on with that one's plan",
            )
        output.log(f"reading {ctx.source.connection.servers} and {ctx.target.connection.servers}")
        proposal = propose(ctx, wish)
        text = proposal.text()
        output.log("checking what is proposed")
        seen = preflight.check(replace(ctx, plan=proposal.plan))
    files = {plan: text}
    if variables:
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        files[plan.with_suffix(".env")] = "".join(lines)
    if key is not None:
        files[key] = f"{secrets.token_hex(32)}\n"
    written = [] if dry_run else write_new(files, secrets=files.keys() - {plan}, field="PLAN")
    steps = _next(plan, files, program=command.command_path.removesuffix(" init"))
    _show(output, proposal, text, seen, steps, written)
    raise typer.Exit(seen.exit_code)


def _before(plan: Path, *, dry_run: bool) -> tuple[dict[str, str], Path | None]:
    """The variable that leads to the approval key, unless one is found, and where the key is to be written, unless it
    is there. Raises BadInput for what cannot be written, before anything is asked."""
    from kafka_migration.migration.signing import FILE_VARIABLE, find_keys
    from kafka_migration.plans.base import PLAIN_NAME

    if not re.fullmatch(PLAIN_NAME, plan.stem) or plan.suffix not in (".yaml", ".yml"):
        raise BadInput(
            "a plan's file is called as its migration, with .yaml",
            field="PLAN",
            value=str(plan),
            remedy="use small letters, digits, dots, hyphens and underscores, 63 at most",
        )
    key = plan.with_name(_KEY).absolute()
    try:
        for path in () if dry_run else (plan, plan.with_suffix(".env")):
            if path.exists() or path.is_symlink():
                raise BadInput(f"{path} is there already", field="PLAN", remedy="remove it, or give another name")
        if find_keys():
            return {}, None
        leads = {FILE_VARIABLE: str(key)}
        if not (key.exists() or key.is_symlink()):
            return leads, key
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(reason, field="PLAN", value=str(plan), remedy="give a folder that can be written") from None
    if not find_keys(leads):
        raise BadInput(f"{key} holds no approval key", field="PLAN", remedy="remove it")
    return leads, None


class _Answers:
    """What was given as an option, or is asked for, or else is the default."""

    def __init__(self, log: Callable[[str], None], *, is_asked: bool) -> None:
        self.log, self.is_asked = log, is_asked

    def text(self, question: str, given: str | None, *, default: str | None = "", option: str = "") -> str:
        """Raises BadInput where there is neither an option, nor a person, nor a default."""
        if given is not None:
            return given.strip()
        if self.is_asked:
            return str(typer.prompt(question, default=default, show_default=bool(default), err=True)).strip()
        if default is None:
            raise BadInput("is missing, and nobody can be asked here", field=option, remedy=f"give {option}")
        return default

    def patterns(self, question: str, given: list[str] | None, option: str) -> tuple[str, ...]:
        """As many as were given; a comma parts those of an answer. Raises BadInput for what is no pattern."""
        from pydantic import ValidationError

        from kafka_migration.plans.patterns import Selection

        answer = given or self.text(question, None)
        try:
            return Selection.model_validate({"include": answer}).include if answer else ()
        except ValidationError as error:
            first = error.errors()[0]
            remedy = str(first.get("ctx", {}).get("remedy", "give regular expressions"))
            raise BadInput(f"{first['input']}: {first['msg']}", field=option, remedy=remedy) from None


def _connection(
    answers: _Answers, name: str, side: Side, given: str | None, config: Path | None
) -> tuple[str, dict[str, str]]:
    """The id of the connection, and the variable that states it; none for one that is there.

    Raises BadInput for one that no client could use.
    """
    from kafka_migration.kafka.lookup import find_connection, stated, variable_of

    properties = {} if config is None else _properties(f"--{side}-config", config)
    servers = given
    if servers is None and "bootstrap.servers" not in properties:
        question = f"The {side}: HOST:PORT of some of its brokers, or the id of a connection"
        servers = answers.text(question, None, default=None, option=f"--{side}")
    if servers is not None and ":" not in servers:
        if config is not None:
            raise BadInput(
                "a connection has its own properties",
                field=f"--{side}-config",
                value=str(config),
                remedy=f"leave it out, or give HOST:PORT by --{side}",
            )
        return find_connection(servers).conn_id, {}
    if config is None and given is None:
        question = f"Client properties of the {side}, a file as for --command-config (empty: none, PLAINTEXT)"
        if file := answers.text(question, None):
            properties = _properties(f"--{side}-config", Path(file).expanduser())
    if servers is not None:
        properties["bootstrap.servers"] = servers
    conn_id = f"{re.sub(r'[^a-z0-9]', '_', name)}_{side}"
    variable, value = variable_of(conn_id), stated(_taken(answers, conn_id, side, properties))
    if os.environ.get(variable, value) != value:
        raise BadInput(
            "is set to another connection",
            field=variable,
            remedy=f"unset it, or give --{side} {conn_id} to use that one; or give the plan another name",
        )
    return conn_id, {variable: value}


def _taken(answers: _Answers, conn_id: str, side: Side, properties: Mapping[str, str]) -> Mapping[str, str]:
    """The connection's properties, from Java's names or librdkafka's. Raises BadInput for what no client could use."""
    from kafka_migration.kafka.connections import ClusterConnection
    from kafka_migration.kafka.properties import FILES, is_property
    from kafka_migration.mirrormaker.connections import connection, is_connection_property

    of_java = {name: value for name, value in properties.items() if is_connection_property(name)}
    ours = {name: value for name, value in properties.items() if name not in of_java and is_property(name)}
    if ours:
        found = dict(ClusterConnection(conn_id, of_java | ours).properties)
    else:
        made = connection(conn_id, of_java)
        for name, counterpart in made.counterparts.items():
            if counterpart.is_open:
                remedy = "write that into the file instead"
                raise BadInput(f"{name}: {counterpart.note}", field=f"--{side}-config", remedy=remedy)
        found = dict(ClusterConnection(conn_id, made.properties).properties)
    if unused := sorted(properties.keys() - of_java.keys() - ours.keys()):
        answers.log(f"of the {side}'s client properties, a migration has no use for {listed(unused)}")
    # Whoever uses the connection may stand in another folder.
    return found | {name: str(Path(found[name]).absolute()) for name in FILES if name in found}


def _properties(option: str, path: Path) -> dict[str, str]:
    from kafka_migration.mirrormaker.read import content, pairs

    return {name: value.strip() for name, value in pairs(path, content(path, option), option)}


def _hooks(how: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The plan's consumers, and the variable that allows what they call."""
    from kafka_migration.groups.hooks import ALLOWED_COMMANDS, ALLOWED_URLS

    if how == "wait":
        return {"stop": [{"wait": True}], "start": [{"wait": True}]}, {}
    if how in _COMMANDS:
        stop, start = _COMMANDS[how]
        program = shutil.which(stop[0])
        allowed = {ALLOWED_COMMANDS: program} if program else {}
        return {"stop": [{"command": stop}], "start": [{"command": start}]}, allowed
    if re.match(r"https?://", how):
        base = how.rstrip("/")
        calls = {verb: [{"http": {"url": f"{base}/{{cluster}}/{{group}}/{verb}"}}] for verb in ("stop", "start")}
        return calls, {ALLOWED_URLS: f"{base}/"}
    raise BadInput("is no way to stop consumers", field="--consumers", remedy=f"give {_HOW}")


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables in this process's environment meanwhile, as the file that is written will set them."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def _next(plan: Path, files: Collection[Path], *, program: str) -> list[str]:
    """Lines for a shell, with which a person goes on."""
    # As it was called; whatever python is first on the way may be another one.
    program = program.replace("python", shlex.quote(sys.executable), 1) if program.startswith("python ") else program
    variables = plan.with_suffix(".env")
    sourced = [f". {shlex.quote(str(variables.absolute()))}"] if variables in files else []
    return [*sourced, *(f"{program} {name} {shlex.quote(str(plan))}" for name in ("check", "run"))]


def _show(
    output: Output,
    proposal: Proposal,
    text: str,
    seen: Preflight,
    steps: Sequence[str],
    written: Sequence[Path],
) -> None:
    from kafka_migration.cli.render.tables import checks, facts

    value = {
        "plan": dict(proposal.fields),
        "left_out": {what: dict(left) for what, left in proposal.left_out.items()},
        "open": seen.gate.is_open,
        "checks": [check.as_dict() for check in seen.gate.results],
        "written": [str(path) for path in written],
        "next": list(steps),
    }
    results = seen.gate.results
    to_see = [check for check in results if check.verdict is not Verdict.PASS]
    shown = [checks("Checks that do not pass", to_see)] if to_see else []
    passed = f"{len(results) - len(to_see)} of {len(results)} checks pass"
    if not written:
        # Of a dry run standard output is the plan itself.
        for part in (*shown, passed):
            output.err.print(part)
        output.result(value, text.rstrip())
        return
    rows = [
        (what, f"{len(getattr(proposal.plan, what).include)} in the plan; left out: {listed(left) or 'none'}")
        for what, left in proposal.left_out.items()
    ]
    output.result(
        value,
        facts(rows),
        *shown,
        passed,
        *(f"written: {path}" for path in written),
        "Read the plan, then:",
        *(f"    {step}" for step in steps),
    )
