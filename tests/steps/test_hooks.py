"""Running hooks: what may run, what it sees, and what is made of its answer."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from demo.brokers.certificates import Authority
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.groups import hooks as hooks_module
from kafka_migration.groups.hooks import (
    ALLOWED_COMMANDS,
    ALLOWED_URLS,
    COMMAND_ENVIRONMENT,
    HookCall,
    HookFailed,
    HookUnanswered,
    allowed_program,
    check_hooks,
    require_allowed,
    require_runnable,
    run_for_password,
    run_hook,
)
from kafka_migration.plans.access import ScramUsers
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from tests.steps.hook_server import HookServer
from tests.waiting import wait_until

SECRET = "s3cr3t-value"


def plan_of(*hooks: dict[str, Any]) -> Plan:
    return restore_plan(
        {
            "version": 1,
            "name": "moving",
            "source": "a",
            "target": "b",
            "topics": {"include": ["orders"]},
            "groups": {"include": [".*"]},
            "consumers": {"stop": list(hooks)},
        }
    )


def call_of(hook: dict[str, Any], group: str = "app") -> HookCall:
    (made,) = plan_of(hook).consumers.stop
    return HookCall(hook=made, group=group, migration="moving", cluster="source", phase="cutover")


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """An allowed program that shows its arguments and its environment."""
    return script(tmp_path / "tool", 'for a in "$@"; do echo "<$a>"; done; env | sort; pwd')


def allowing(*paths: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], ALLOWED_COMMANDS: ":".join(map(str, paths)), **more}


# -- commands ---------------------------------------------------------------------------------------------------------


def test_command_gets_its_arguments_as_they_are_without_a_shell(tool: Path) -> None:
    hook = {"command": [str(tool), "{group}", "$HOME; id", "{migration}/{cluster}/{phase}", "*", '{"a": 1}']}
    run = run_hook(call_of(hook, "a b"), environ=allowing(tool))
    for argument in ("<a b>", "<$HOME; id>", "<moving/source/cutover>", "<*>", '<{"a": 1}>'):
        assert argument in run.said


def test_command_is_found_by_file_name(tool: Path) -> None:
    assert "<app>" in run_hook(call_of({"command": ["tool", "{group}"]}), environ=allowing(tool)).said


def test_command_sees_no_secret_of_the_process_but_what_the_administrator_lets_through(tool: Path) -> None:
    environ = allowing(tool, AIRFLOW_CONN_KAFKA=SECRET, TOKEN=SECRET, LANG="C.UTF-8", RUN_DIRECTORY="/there")
    said = run_hook(call_of({"command": ["tool"]}), environ=environ).said
    assert SECRET not in said
    assert "RUN_DIRECTORY" not in said
    assert "LANG=C.UTF-8" in said
    assert said.endswith("/")
    said = run_hook(call_of({"command": ["tool"]}), environ=environ | {COMMAND_ENVIRONMENT: "RUN_DIRECTORY:NONE"}).said
    assert "RUN_DIRECTORY=/there" in said


@pytest.mark.parametrize("allowed", ["", ":", "tool", "/bin/true:/bin/false"])
def test_command_that_is_not_listed_does_not_run(allowed: str, tool: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    script(tool, f"touch {marker}")
    for program in (str(tool), "tool"):
        with pytest.raises(Refused, match="is not allowed here") as caught:
            run_hook(call_of({"command": [program]}), environ={ALLOWED_COMMANDS: allowed})
        assert ALLOWED_COMMANDS in caught.value.remedy
    assert not marker.exists()


def test_command_of_the_same_name_elsewhere_is_another_command(tool: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    imposter = script(other / "tool", "echo other")
    with pytest.raises(Refused, match="is not allowed"):
        allowed_program(str(imposter), allowing(tool))


def test_command_is_what_the_administrator_listed_however_the_plan_spells_it(tool: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tool)
    assert allowed_program(str(link), allowing(tool)) == str(tool)
    assert allowed_program(f"{tmp_path}/../{tmp_path.name}/tool", allowing(tool)) == str(tool)
    # One program that acts by the name it is called by: the listed name counts, not the plan's.
    assert allowed_program(str(tool), allowing(link)) == str(link)


def test_file_name_of_two_listed_programs_is_ambiguous(tool: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    second = script(other / "tool", "echo other")
    with pytest.raises(Refused, match="ambiguous"):
        allowed_program("tool", allowing(tool, second))
    assert allowed_program(str(second), allowing(tool, second)) == str(second)


def test_listed_program_that_is_no_executable_file_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    for path in (plain, tmp_path / "absent", tmp_path):
        with pytest.raises(Refused, match="not an executable file"):
            allowed_program(str(path), allowing(path))


@pytest.mark.parametrize("group", ["-x", "--force", "-"])
def test_group_named_like_an_option_does_not_become_one(group: str, tool: Path) -> None:
    call = call_of({"command": ["tool", "{group}"]}, group)
    for refuse in (run_hook, require_runnable):
        with pytest.raises(Refused, match="taken for an option"):
            refuse(call, environ=allowing(tool))


def test_group_is_passed_with_its_option_whatever_it_is_called(tool: Path) -> None:
    said = run_hook(call_of({"command": ["tool", "--group={group}"]}, "--force"), environ=allowing(tool)).said
    assert "<--group=--force>" in said


def test_failing_command_is_told_with_its_code_and_the_end_of_what_it_said(tool: Path) -> None:
    script(tool, "seq 1 5000; printf 'no\\033[31m such deployment'; exit 7")
    with pytest.raises(HookFailed, match="exit code 7") as caught:
        run_hook(call_of({"command": ["tool"]}), environ=allowing(tool))
    message = caught.value.message
    assert "no [31m such deployment" in message
    assert "output: ..." in message
    assert len(message) < 800


def test_command_ended_by_a_signal_is_told_so(tool: Path) -> None:
    script(tool, "kill -TERM $$")
    with pytest.raises(HookFailed, match="signal SIGTERM"):
        run_hook(call_of({"command": ["tool"]}), environ=allowing(tool))


def test_command_that_takes_too_long_is_ended_with_its_children(tool: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script(tool, f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; echo waiting; wait")
    began = time.monotonic()
    with pytest.raises(HookUnanswered, match=r"within 1 s, and was killed; its output: waiting") as caught:
        run_hook(call_of({"command": ["tool"], "timeout_seconds": 1}), environ=allowing(tool))
    assert isinstance(caught.value, CouldNotFindOut)
    assert time.monotonic() - began < 120
    child = int(pid.read_text())
    wait_until(lambda: not _runs(child), "the child is gone")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_command_that_leaves_consumers_running_returns_at_once(tool: Path, tmp_path: Path) -> None:
    """They inherit its output: a pipe would stay open for as long as they live."""
    pid = tmp_path / "pid"
    script(tool, f"sleep 600 & echo $! > {pid}; echo started")
    try:
        began = time.monotonic()
        assert run_hook(call_of({"command": ["tool"]}), environ=allowing(tool)).said == "started"
        assert time.monotonic() - began < 120
        assert _runs(int(pid.read_text()))
    finally:
        os.kill(int(pid.read_text()), 9)


def test_command_ends_with_its_children_when_the_process_that_runs_it_is_killed(tool: Path, tmp_path: Path) -> None:
    """A stop that went on would land after the start of the next try."""
    pids = tmp_path / "pids"
    script(tool, f"sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait")
    running = (
        "import sys; from tests.steps.test_hooks import call_of, run_hook;"
        " run_hook(call_of({'command': ['tool']}), environ={'KAFKA_MIGRATION_ALLOWED_COMMANDS': sys.argv[1]})"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", running, str(tool)], env=environ) as process:
        wait_until(pids.exists, "the command runs")
        process.kill()
    for pid in pids.read_text().split():
        wait_until(lambda pid=int(pid): not _runs(pid), "it has ended")


def test_command_ends_with_a_process_that_is_killed_as_soon_as_the_command_is_there(tool: Path, tmp_path: Path) -> None:
    """Whoever started it never learned its number."""
    pids = tmp_path / "pids"
    script(tool, f"sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait")
    running = f"""
import os, signal, subprocess, time
from tests.steps.test_hooks import call_of, run_hook

class Killed(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if command[0] == {str(tool)!r}:
            while not os.path.exists({str(pids)!r}):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

subprocess.Popen = Killed
run_hook(call_of({{"command": ["tool"]}}), environ={{"KAFKA_MIGRATION_ALLOWED_COMMANDS": {str(tool)!r}}})
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", running], env=environ, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    for pid in pids.read_text().split():
        wait_until(lambda pid=int(pid): not _runs(pid), "it has ended")


def test_command_reads_no_input(tool: Path) -> None:
    script(tool, "cat; echo end")
    assert run_hook(call_of({"command": ["tool"]}), environ=allowing(tool)).said == "end"


def test_command_without_a_working_interpreter_is_told_so(tool: Path) -> None:
    tool.write_text("#!/no/such/interpreter\n")
    with pytest.raises(HookFailed, match="cannot be started"):
        run_hook(call_of({"command": ["tool"]}), environ=allowing(tool))


def test_secrets_that_a_command_says_are_not_in_what_is_kept(tmp_path: Path) -> None:
    says = script(
        tmp_path / "says",
        f'echo "$DEPLOY_KEY"; echo "password=hunter2 token: abc.def"; echo "Authorization: Bearer {SECRET}"; echo done',
    )
    environ = allowing(says, DEPLOY_KEY="k3y-of-the-deployer", **{COMMAND_ENVIRONMENT: "DEPLOY_KEY"})
    run = run_hook(call_of({"command": [str(says)]}), environ=environ)
    assert run.said.endswith("done")
    assert run.said.count("<hidden>") == 4
    for secret in ("k3y-of-the-deployer", "hunter2", "abc.def", SECRET):
        assert secret not in str(run.as_dict())


def test_secret_at_the_edge_of_what_is_shown_is_not_shown_in_half(tmp_path: Path) -> None:
    says = script(tmp_path / "says", 'echo "$DEPLOY_KEY"; i=0; while [ $i -lt 590 ]; do printf x; i=$((i + 1)); done')
    environ = allowing(says, DEPLOY_KEY="k3y-of-the-deployer", **{COMMAND_ENVIRONMENT: "DEPLOY_KEY"})
    said = run_hook(call_of({"command": [str(says)]}), environ=environ).said
    assert "deployer" not in said
    assert "ployer" not in said


# -- passwords --------------------------------------------------------------------------------------------------------


def password(tool: Path, user: str = "app", **fields: Any) -> str:
    users = ScramUsers(command=(str(tool), "{user}", "--migration={migration}"), **fields)
    return run_for_password(users, user, "moving", environ=allowing(tool, TOKEN=SECRET))


def test_password_is_the_only_line_that_a_command_prints_for_a_user(tool: Path) -> None:
    script(tool, 'echo "not this" >&2; printf "%s\\n" " p w of $1, $2, $TOKEN"; sleep 5 &')
    assert password(tool, "a b") == " p w of a b, --migration=moving, "
    with pytest.raises(Refused, match="would be taken for an option"):
        password(tool, "--force")


@pytest.mark.parametrize("printing", ["true", "echo", f"echo {SECRET}; echo {SECRET}", f"printf '{SECRET}\\377'"])
def test_what_is_not_one_line_is_no_password_and_is_not_shown(tool: Path, printing: str) -> None:
    script(tool, printing)
    with pytest.raises(HookFailed, match="tool app --migration=moving: printed something else than one line") as caught:
        password(tool)
    assert SECRET not in str(caught.value)


def test_command_for_a_password_that_fails_or_hangs_shows_nothing_of_its_output(tool: Path) -> None:
    script(tool, f"echo {SECRET}; echo {SECRET} >&2; kill -TERM $$")
    with pytest.raises(HookFailed, match="signal SIGTERM") as failed:
        password(tool)
    script(tool, f"echo {SECRET}; sleep 100")
    with pytest.raises(HookUnanswered, match=r"did not end within 0\.2 s") as hung:
        password(tool, timeout_seconds=0.2)
    assert SECRET not in f"{failed.value} {hung.value}"


# -- HTTP calls -------------------------------------------------------------------------------------------------------


def http(url: str, **fields: Any) -> dict[str, Any]:
    return {"http": {"url": url, **fields}}


def test_call_reaches_the_server_with_its_templates_and_headers(hooks: HookServer) -> None:
    hook = http(
        f"{hooks.url}/stop/{{cluster}}/{{phase}}/{{group}}",
        headers={"Authorization": "env:KAFKA_MIGRATION_HOOK_TOKEN", "X-Migration": "yes"},
    )
    run = run_hook(call_of(hook, "a/b c?d"), environ=hooks.environ | {"KAFKA_MIGRATION_HOOK_TOKEN": f"Bearer {SECRET}"})
    assert run.said == "200"
    assert hooks.calls == [("stop", "source", "cutover", "a/b c?d")]
    assert hooks.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert hooks.headers[0]["X-Migration"] == "yes"
    assert SECRET not in run.what


@pytest.mark.parametrize(
    ("allowed", "url", "may"),
    [
        ("https://h/v1", "https://h/v1/stop", True),
        ("https://h/v1/", "https://h/v1/stop?x=1", True),
        ("https://h/v1", "https://h/v1", True),
        ("https://h", "https://H:443/anything", True),
        ("https://other https://h/", "https://h/x", True),
        ("", "https://h/x", False),
        ("h", "https://h/x", False),
        ("https://h/v1", "https://h/v12/stop", False),
        ("https://h/v1", "https://h/v1/../admin", False),
        ("https://h/v1", "https://h/v1/%2e%2E/admin", False),
        ("https://h/v1", "http://h/v1/stop", False),
        ("https://h/v1", "https://h:8443/v1/stop", False),
        ("https://h/v1", "https://h.evil.example/v1/stop", False),
        ("https://h", "https://h@evil.example/", False),
        ("https://h:8443/v1", "http://h:8443/v1/stop", False),
        ("http://h:443", "https://h:443/x", False),
        ("https://h:0", "https://h/x", False),
        ("https://h/v1", "https://h/v1/a%2Fb", True),
        ("https://h/v1", "https://h/v1/..%2f..%2fadmin", False),
        ("https://h/v1", "https://h/v1/%252e%252e/admin", False),
        ("https://h/v1", "https://h/v1/%25252e%25252e%25252fadmin", False),
        ("https://h/v1", "https://h/v1/" + "%" + "25" * 20 + "2e", False),
        ("https://h/v1", "https://h/v1/..;/admin", False),
        ("https://h/v1", "https://h/v1/..;a=b/admin", False),
        ("https://h/v1", "https://h/v1/..%3B/admin", False),
        ("https://h/v1", "https://h/v1/..\\..\\admin", False),
        ("https://h/v1", "https://h/v1/..%5cadmin", False),
        ("https://h/v1", "https://h/v1/a%00/../x", False),
        ("https://h/v1", "https://h/v1/a%0d%0aX:y", False),
        ("https://h/v1", "https://h//v1/stop", True),
        ("https://h/v1", "https://h/v1%2f..%2fadmin", False),
        ("https://h/v1", "https://h/v1...", False),
        ("https://h/do?action=stop", "https://h/do?action=stop&group=a", True),
        ("https://h/do?action=stop", "https://h/do?action=delete", False),
        ("https://h/do?action=stop", "https://h/do?action=stop&action=delete", False),
        ("https://h/do?action=stop", "https://h/do", False),
    ],
)
def test_url_is_allowed_by_the_administrators_prefixes_alone(allowed: str, url: str, may: bool) -> None:
    if may:
        require_allowed(url, {ALLOWED_URLS: allowed})
        return
    with pytest.raises(Refused, match="is not allowed here") as caught:
        require_allowed(url, {ALLOWED_URLS: allowed})
    assert ALLOWED_URLS in caught.value.remedy


def test_server_that_nobody_allowed_is_not_called(hooks: HookServer) -> None:
    with pytest.raises(Refused, match="is not allowed here"):
        run_hook(call_of(http(f"{hooks.url}/stop/a/b/c")), environ={})
    assert hooks.calls == []


@pytest.mark.parametrize("group", ["..", "../../admin", "..;/admin", "%2e%2e/admin", "..%2fadmin", ".", "..\\admin"])
def test_group_named_like_a_way_up_does_not_leave_the_prefix(group: str, hooks: HookServer) -> None:
    environ = {ALLOWED_URLS: f"{hooks.url}/stop"}
    call = call_of(http(f"{hooks.url}/stop/{{group}}/b/c"), group)
    with pytest.raises(Refused, match="is not allowed here"):
        run_hook(call, environ=environ)
    with pytest.raises(Refused, match="is not allowed here"):
        require_runnable(call, environ=environ)
    assert hooks.calls == []


@pytest.mark.parametrize("code", [408, 429, 500, 503])
def test_answer_that_says_nothing_of_another_call_counts_as_unanswered(code: int, hooks: HookServer) -> None:
    hooks.answer = (code, b"not now")
    with pytest.raises(HookUnanswered, match=f"answered {code}\\n"):
        run_hook(call_of(http(f"{hooks.url}/stop/a/b/c")), environ=hooks.environ)


@pytest.mark.parametrize("code", [301, 400, 404])
def test_answer_other_than_2xx_is_a_failure(code: int, hooks: HookServer) -> None:
    hooks.answer = (code, b"not now")
    with pytest.raises(HookFailed, match=f"answered {code}\\n"):
        run_hook(call_of(http(f"{hooks.url}/stop/a/b/c")), environ=hooks.environ)
    assert len(hooks.calls) == 1


@pytest.mark.parametrize("code", [200, 201, 202, 204])
def test_answer_of_2xx_is_success(code: int, hooks: HookServer) -> None:
    hooks.answer = (code, b"")
    assert run_hook(call_of(http(f"{hooks.url}/stop/a/b/c")), environ=hooks.environ).said.startswith(str(code))


def test_server_that_echoes_a_secret_does_not_bring_it_into_messages(hooks: HookServer) -> None:
    hooks.answer = (403, f"who is {SECRET}?".encode())
    hook = http(f"{hooks.url}/stop/a/b/c", headers={"X-Key": "env:KAFKA_MIGRATION_HOOK_KEY"})
    with pytest.raises(HookFailed) as caught:
        run_hook(call_of(hook), environ=hooks.environ | {"KAFKA_MIGRATION_HOOK_KEY": SECRET})
    assert "answered 403" in str(caught.value)
    assert "who is" not in str(caught.value)


def test_long_answer_is_not_read_to_its_end(hooks: HookServer) -> None:
    hooks.answer = (400, b"x" * 10_000_000)
    with pytest.raises(HookFailed) as caught:
        run_hook(call_of(http(f"{hooks.url}/stop/a/b/c")), environ=hooks.environ)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("value", ["", "two\nlines", "k\u00e4se"])
def test_header_variable_that_is_unset_or_unfit_refuses_before_the_call(value: str, hooks: HookServer) -> None:
    hook = http(f"{hooks.url}/stop/a/b/c", headers={"X-Key": "env:KAFKA_MIGRATION_HOOK_KEY"})
    with pytest.raises(Refused, match="KAFKA_MIGRATION_HOOK_KEY") as caught:
        run_hook(call_of(hook), environ=hooks.environ | ({"KAFKA_MIGRATION_HOOK_KEY": value} if value else {}))
    assert not value or value not in str(caught.value)
    assert hooks.calls == []


def test_server_that_does_not_listen_is_unanswered() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x"
        with pytest.raises(HookUnanswered, match="ConnectError"):
            run_hook(call_of(http(url)), environ={ALLOWED_URLS: url})


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that sends a byte of its answer now and then, for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    ending = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not ending.wait(0.1):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/x"
    ending.set()
    thread.join()
    listener.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with a certificate of an authority of its own: its URL, and that authority's certificate."""
    authority = Authority(tmp_path / "authority")
    authority.issue("hooks")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.directory / "hooks.crt", authority.directory / "hooks.key")
    with closing(HookServer(context)) as server:
        yield f"{server.url}/stop/a/b/c", authority.ca


def test_server_whose_certificate_nobody_trusts_is_not_called_and_one_that_is_trusted_is(
    guarded: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, authority = guarded
    call = call_of(http(url))
    with pytest.raises(HookUnanswered, match="CERTIFICATE_VERIFY_FAILED"):
        run_hook(call, environ={ALLOWED_URLS: url})
    monkeypatch.setattr(hooks_module, "_trusted", lambda: ssl.create_default_context(cafile=authority))
    run_hook(call, environ={ALLOWED_URLS: url})


def test_server_that_answers_too_slowly_is_given_up(dripping: str) -> None:
    began = time.monotonic()
    with pytest.raises(HookUnanswered, match=r"no answer within 0\.5 s"):
        run_hook(call_of(http(dripping, timeout_seconds=0.5)), environ={ALLOWED_URLS: dripping})
    assert time.monotonic() - began < 60


def test_proxy_and_credentials_of_the_environment_are_not_used(
    hooks: HookServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    run_hook(call_of(http(f"{hooks.url}/stop/a/b/c")))
    assert "Authorization" not in hooks.headers[0]


# -- preflight --------------------------------------------------------------------------------------------------------


def test_check_names_each_hook_and_runs_none(tool: Path, hooks: HookServer, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    script(tool, f"touch {marker}")
    plan = plan_of(
        {"command": ["tool"]},
        {"command": ["/bin/other"]},
        http(hooks.url),
        http(hooks.url, headers={"X-Key": "env:KAFKA_MIGRATION_HOOK_KEY"}),
        {"wait": True},
        http("http://127.0.0.1:1/other"),
    )
    results = check_hooks(plan, environ=allowing(tool) | hooks.environ)
    assert [(it.name, str(it.verdict)) for it in results] == [
        ("hook consumers.stop[0]", "PASS"),
        ("hook consumers.stop[1]", "FAIL"),
        ("hook consumers.stop[2]", "PASS"),
        ("hook consumers.stop[3]", "FAIL"),
        ("hook consumers.stop[4]", "PASS"),
        ("hook consumers.stop[5]", "FAIL"),
    ]
    assert all(it.remedy for it in results if str(it.verdict) == "FAIL")
    assert not marker.exists()
    assert hooks.calls == []


def test_redirect_is_not_followed_to_where_nobody_allowed_a_call(hooks: HookServer) -> None:
    hooks.location = f"{hooks.url}/elsewhere/source/cutover/app"
    hooks.answer = (302, b"")
    hook = {"http": {"url": f"{hooks.url}/stop/{{cluster}}/{{phase}}/{{group}}", "method": "GET"}}
    with pytest.raises(HookFailed, match="302"):
        run_hook(call_of(hook), environ=hooks.environ)
    assert [call[0] for call in hooks.calls] == ["stop"]
