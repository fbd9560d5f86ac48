"""access, schemas: what the target lacks of the source's ACLs, quotas, SCRAM users and schemas; and making it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output
from kafka_migration.cli.render.tables import facts, grid
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.access.difference import AccessDiff
    from kafka_migration.access.grants import Grants, ToUndo
    from kafka_migration.access.limits import Limit, Limits
    from kafka_migration.kafka.types import Acl, ScramUser
    from kafka_migration.migration.context import Context
    from kafka_migration.schemas.copy import ToUndo as SchemasToUndo
    from kafka_migration.schemas.difference import Difference
    from kafka_migration.schemas.types import Version
    from kafka_migration.steps.step import Decision

#: Enough to see which; --json has them all.
_SHOWN = 100
_CREDENTIALS = ("user", "mechanism", ">iterations")
_VERSION = ("subject", ">version", ">id", "type", "refers to")


def access(
    plan: PlanFile,
    as_commands: Annotated[
        bool, typer.Option("--commands", help="Print the command lines that make them on the target, and nothing else.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Make what is missing on the target.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove what --apply has made, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Make them, or remove them, without being asked.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show which ACLs of the plan's topics and groups, and which quotas of their users, the target lacks. Changes
    nothing without --apply or --undo."""
    if as_commands + apply + undo > 1:
        raise typer.BadParameter("--commands, --apply and --undo exclude each other", param_hint="--apply")
    output = Output(as_json=as_json)
    if apply:
        _apply_access(plan, output, yes=yes, dry_run=dry_run)
    elif undo:
        _undo_access(plan, output, yes=yes, dry_run=dry_run)
    else:
        _show_access(plan, output, as_commands=as_commands)


def _show_access(plan: PlanFile, output: Output, *, as_commands: bool) -> None:
    from kafka_migration.access import limits
    from kafka_migration.kafka import acl_commands
    from kafka_migration.steps import access as step

    with opened(plan, output, to_check=True) as ctx:
        seen = step.look(ctx)
        servers = shlex.quote(ctx.target.connection.servers)
    lines = (*acl_commands.adding(seen.acls.missing, servers=servers), *limits.commands(seen.limits, servers=servers))
    value = {**seen.acls.as_dict(), "quotas": seen.limits.as_dict(), "commands": list(lines)}
    value["scram_users"] = [asdict(user) for user in seen.users or ()]
    output.result(value, *(lines if as_commands else [_access_missing(seen.acls, seen.limits, seen.users or ())]))
    # Users that a cluster does not show may be missing as well.
    raise typer.Exit(1 if seen.missing or seen.users is None else 0)


def _apply_access(plan: PlanFile, output: Output, *, yes: bool, dry_run: bool) -> None:
    from kafka_migration.steps import access as step

    with opened(plan, output, dry_run=dry_run) as ctx:
        seen = step.check(ctx)
        if seen.missing and not (dry_run or yes):
            question = f"Make {seen.missing} on the target?"
            demand_yes(output, question, shown=_access_lines(seen.missing), declined="nothing was made")
        made = step.run(ctx, seen).value
    verb = "would be made" if dry_run else "made, and read back"
    output.result(made.as_dict() | {"dry_run": dry_run}, f"{made} {verb}")


def _undo_access(plan: PlanFile, output: Output, *, yes: bool, dry_run: bool) -> None:

    from kafka_migration.steps import access as step

    _take_back(
        plan,
        output,
        check=step.check_undo,
        undo=step.undo,
        asks=lambda found: (f"Remove {found.removed} from the target", _access_lines(found.removed)),
        shows=lambda found: (_access_staying(found), str(found.removed)),
        verb="removed",
        yes=yes,
        dry_run=dry_run,
    )


def _access_missing(seen: AccessDiff, limits: Limits, users: Collection[ScramUser] = ()) -> RenderableType:
    """All as tables, with the ``users`` that are to be made, and how many ACLs are there."""
    columns = ("permission", "principal", "operation", "on")
    missing = [_acl_row(acl) for acl in seen.missing]
    left_out = [(*_acl_row(one.acl), one.why) for one in seen.left_out]
    count = len(missing) + len(limits.missing) + len(users)
    lacks = f"{count} missing: `--apply` makes them, `--commands` prints how" if count else "none missing"
    quotas = ("of", "limit", ">source", ">target")
    ours = [_limit(limit) for limit in (*limits.missing, *limits.different)]
    others = [_limit(limit) for limit in limits.by_hand]
    return Group(
        grid("The target lacks", columns, missing[:_SHOWN], note=_more(len(missing))),
        grid("Not copied", (*columns, "why"), left_out[:_SHOWN], note=_more(len(left_out))),
        grid("Client quotas that the target lacks, or has another value of", quotas, ours),
        grid("Client quotas of others, too: set them by hand, if they are wanted", quotas, others),
        grid("SCRAM users that get new passwords", _CREDENTIALS, _credentials(users)),
        facts(("note", text) for text in (*seen.notes, *limits.unknown, *limits.notes, *_by_hand(limits, users))),
        Text(f"{seen.present} ACLs there, {lacks}", "bold yellow" if count else "green"),
    )


def _access_lines(grants: Grants) -> Iterator[str]:
    """Each ACL, limit and user, for whoever is asked."""
    from kafka_migration.access.difference import in_words
    from kafka_migration.access.limits import shown, words

    yield from map(in_words, grants.acls)
    yield from (f"{limit.key}={shown(limit.value)} of {words(limit.entity)}" for limit in grants.limits)
    yield from (f"SCRAM user {user} by {name}, {count} iterations" for user, name, count in _credentials(grants.users))


def _access_staying(found: ToUndo) -> RenderableType:
    """What is not removed, and why."""
    columns = ("permission", "principal", "operation", "on")
    stay, quotas = [_acl_row(acl) for acl in found.stay.acls], ("of", "limit", ">set", ">before")
    return Group(
        grid("Stay, as another migration may go by them", columns, stay[:_SHOWN], note=_more(len(stay))),
        grid("Stay, as another migration goes by them", quotas, [_limit(limit) for limit in found.stay.limits]),
        grid("Stay, as another migration's clients may log in so", _CREDENTIALS, _credentials(found.stay.users)),
        grid(
            "Stay, as somebody has set another value since", quotas, [_limit(limit) for limit in found.changed.limits]
        ),
        grid("Stay, as somebody has set another password since", _CREDENTIALS, _credentials(found.changed.users)),
    )


def _limit(limit: Limit) -> tuple[str, str, str, str]:
    from kafka_migration.access.limits import shown, words

    there = "" if limit.there is None else shown(limit.there)
    return words(limit.entity), limit.key, shown(limit.value), there


def _credentials(users: Iterable[ScramUser]) -> list[tuple[str, str, str]]:
    return [(user.user, name, str(count)) for user in users for name, count in user.credentials]


def _by_hand(limits: Limits, made: Collection[ScramUser]) -> Iterator[str]:
    if users := [user for user in limits.users or () if user not in made]:
        names = listed(f"{user.user} ({', '.join(name for name, _ in user.credentials)})" for user in users)
        yield f"no SCRAM credentials on the target: {names}; give them new passwords, or other ways to authenticate"


def _acl_row(acl: Acl) -> tuple[str, str, str, str]:
    from kafka_migration.access.difference import where

    return acl.permission, acl.principal, acl.operation, where(acl)


def schemas(
    plan: PlanFile,
    apply: Annotated[bool, typer.Option("--apply", help="Make the missing schemas on the target's registry.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Delete what --apply has made, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Make them, or delete them, without being asked.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show which schemas of the plan's topics the target's schema registry lacks. Changes nothing without --apply or
    --undo."""
    if apply and undo:
        raise typer.BadParameter("--apply and --undo exclude each other", param_hint="--apply")
    output = Output(as_json=as_json)
    if apply:
        _apply_schemas(plan, output, yes=yes, dry_run=dry_run)
    elif undo:
        _undo_schemas(plan, output, yes=yes, dry_run=dry_run)
    else:
        _show_schemas(plan, output)


def _show_schemas(plan: PlanFile, output: Output) -> None:
    from kafka_migration.schemas.difference import read

    with opened(plan, output, to_check=True) as ctx:
        found = read(ctx)
    output.result(found.as_dict(), _schemas_missing(found))
    raise typer.Exit(found.exit_code)


def _apply_schemas(plan: PlanFile, output: Output, *, yes: bool, dry_run: bool) -> None:
    from kafka_migration.steps import schemas as step

    with opened(plan, output, dry_run=dry_run) as ctx:
        found = step.check(ctx)
        if not (found.is_none or dry_run or yes):
            question = f"Make {found} on the target's schema registry?"
            demand_yes(output, question, shown=found.missing, declined="nothing was made")
        made = step.apply(ctx).value
    verb = "would be made" if dry_run else "made, and read back"
    output.result(made.as_dict() | {"dry_run": dry_run}, f"{made} {verb}")


def _undo_schemas(plan: PlanFile, output: Output, *, yes: bool, dry_run: bool) -> None:

    from kafka_migration.steps import schemas as step

    _take_back(
        plan,
        output,
        check=step.check_undo,
        undo=step.undo,
        asks=lambda found: (f"Delete {len(found.removed)} versions for good", found.removed),
        shows=lambda found: (_schemas_staying(found), f"{len(found.removed)} versions"),
        verb="deleted",
        yes=yes,
        dry_run=dry_run,
    )


def _schemas_missing(found: Difference) -> RenderableType:
    """All as tables, and how many are there."""
    settings = [
        (name, ", ".join(f"{key} {value}" for key, value in config.items())) for name, config in found.configs.items()
    ]
    settings += [(name, f"mode {mode}") for name, mode in found.modes.items()]
    taken, left_out = ([(text,) for text in texts] for texts in (found.collisions, found.left_out))
    if found.collisions:
        end = Text(f"{len(found.collisions)} collisions: nothing is copied before they are gone", "bold red")
    elif found.is_none:
        end = Text(f"{found.present} versions there, none missing", "green")
    else:
        end = Text(f"{found.present} versions there; missing: {found}. `--apply` makes them", "bold yellow")
    return Group(
        grid("The target lacks", _VERSION, _rows(found.missing), note=_more(len(found.missing))),
        grid("To be set on the target", ("subject", "what"), settings[:_SHOWN], note=_more(len(settings))),
        grid("Taken on the target", ("what",), taken[:_SHOWN], note=_more(len(taken))),
        grid("Not copied", ("what",), left_out[:_SHOWN], note=_more(len(left_out))),
        facts(("note", text) for text in _notes(found)),
        end,
    )


def _notes(found: Difference) -> Iterator[str]:
    yield from found.notes
    if found.left_importing:
        yield f"left halfway, maybe in mode IMPORT: {listed(found.left_importing)}; `--apply` ends that"


def _schemas_staying(found: SchemasToUndo) -> RenderableType:
    """What is not deleted, and why."""
    return Group(
        grid("Stay, as others may need them, or are read-only", ("subject",), [(name,) for name in found.stay]),
        grid("Stay, as somebody has changed them since", ("version",), [(text,) for text in found.changed]),
    )


def _rows(versions: Iterable[Version]) -> list[tuple[str, ...]]:
    def row(version: Version) -> tuple[str, ...]:
        name = f"{version.subject} (soft-deleted)" if version.is_deleted else version.subject
        refers = listed(f"{one.subject} {one.version}" for one in version.content.references)
        return name, str(version.version), str(version.id), version.content.type, refers

    return [row(version) for version in list(versions)[:_SHOWN]]


def _more(count: int) -> str:
    return f"and {count - _SHOWN} more: --json shows all" if count > _SHOWN else ""


def _take_back(
    plan: Path,
    output: Output,
    *,
    check: Callable[[Context], Any],
    undo: Callable[[Context], Decision],
    asks: Callable[[Any], tuple[str, Iterable[object]]],
    shows: Callable[[Any], tuple[RenderableType, str]],
    verb: str,
    yes: bool,
    dry_run: bool,
) -> None:
    """Have ``undo`` remove what ``check`` finds to be ``removed``. ``asks`` gives the question for it, and lines
    to show before; ``shows`` what stays, and in words what was removed, or (``verb``) deleted."""
    with opened(plan, output, dry_run=dry_run) as ctx:
        found = check(ctx)
        if found.removed and not (dry_run or yes):
            question, lines = asks(found)
            question = f"{question}, which migration {ctx.plan.name} has made?"
            demand_yes(output, question, shown=lines, declined=f"nothing was {verb}")
        found = undo(ctx).value
    stays, removed = shows(found)
    output.result(found.as_dict() | {"dry_run": dry_run}, stays, f"{removed} {'would be ' if dry_run else ''}{verb}")
