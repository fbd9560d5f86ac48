"""The contract of handlers: which function runs, and what it may make of a record."""

import hashlib
import itertools
import pickle
import sys
import traceback
import zipfile
from pathlib import Path

import pytest

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.handlers import Handler, HandlerFailed, Record, decoded, encoded, source_digest

RECORD = Record(b"k", b"secret", (("h", None), ("h", b"v")), 5, 12)
_numbers = itertools.count()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def handler(place: Path, body: str, *, keeps_keys: bool = False) -> Handler:
    """A function of one line, in a module of its own."""
    name = f"handler_of_test_{next(_numbers)}"
    (place / f"{name}.py").write_text(f"def handle(record):\n    {body}\n")
    function = f"{name}:handle"
    return Handler(function=function, sha256=source_digest(function), keeps_keys=keeps_keys)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return record", RECORD),
        ("return None", None),
        ("return record._replace(value=None, key=b'')", RECORD._replace(value=None, key=b"")),
        ("return record._replace(headers=[*record.headers, ['n', b'']])", (*RECORD.headers, ("n", b""))),
        ("return record._replace(timestamp=-1)", RECORD._replace(timestamp=-1)),
    ],
)
def test_function_gives_a_record_another_one_or_nothing(place, body, expected):
    found = handler(place, body).load()(RECORD)
    assert (found.headers if found and found.headers != RECORD.headers else found) == expected


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return int(record.value)", "ValueError (handler_of_test_"),
        ("raise SystemExit(record.value)", "SystemExit (handler_of_test_"),
        ("return record.value", "returned a bytes"),
        ("return [record]", "returned a list"),
        ("return (*record,)", "returned a tuple"),
        ("return record._replace(value='text')", "value is a str"),
        ("return record._replace(key=bytearray(b''))", "key is a bytearray"),
        ("return record._replace(headers=[('h', 'text')])", "headers are not pairs"),
        ("return record._replace(headers=[(b'h', b'')])", "headers are not pairs"),
        ("return record._replace(headers=[('\\ud800', b'')])", "headers are not pairs"),
        ("return record._replace(headers=None)", "headers are not pairs"),
        ("return record._replace(timestamp=1.5)", "timestamp is not"),
        ("return record._replace(timestamp=True)", "timestamp is not"),
        ("return record._replace(timestamp=2**63)", "timestamp is not"),
        ("return record._replace(offset=13)", "changed the offset"),
    ],
)
def test_wrong_result_names_function_and_offset_and_nothing_of_the_record(place, body, why):
    mine = handler(place, body)
    with pytest.raises(HandlerFailed) as failure:
        mine.load()(RECORD)
    assert f"{mine.function}, record at source offset 12: {why}" in str(failure.value)
    assert failure.value.offset == 12
    assert "secret" not in str(failure.value)
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)


@pytest.mark.parametrize(
    ("body", "is_kept"),
    [
        ("return None", False),
        ("return record._replace(key=b'other')", False),
        ("return record._replace(value=None)", False),
        ("return record._replace(value=b'*', headers=())", True),
    ],
)
def test_keeps_keys_has_each_record_keep_key_and_deletion(place, body, is_kept):
    handle = handler(place, body, keeps_keys=True).load()
    if is_kept:
        assert handle(RECORD) == Record(b"k", b"*", (), 5, 12)
    else:
        with pytest.raises(HandlerFailed, match="keeps_keys"):
            handle(RECORD)


def test_digest_is_that_of_the_modules_file_which_is_not_run_for_it(place):
    (place / "handler_that_fails.py").write_text("raise SystemExit\n")
    expected = hashlib.sha256(b"raise SystemExit\n").hexdigest()
    assert source_digest("handler_that_fails:f") == expected
    assert "handler_that_fails" not in sys.modules


def test_module_in_a_zip_file_is_found_as_spark_ships_it(place, monkeypatch):
    with zipfile.ZipFile(place / "shipped.zip", "w") as archive:
        archive.writestr("zipped_handler.py", "def f(record):\n    return None\n")
    monkeypatch.syspath_prepend(place / "shipped.zip")
    mine = Handler(function="zipped_handler:f", sha256=source_digest("zipped_handler:f"))
    assert mine.load()(RECORD) is None


def test_code_that_the_plan_does_not_mean_is_not_run(place):
    (place / "other_handler.py").write_text("raise SystemExit\n")
    with pytest.raises(BadInput, match="the plan 00") as refused:
        Handler(function="other_handler:f", sha256="0" * 64).load()
    assert source_digest("other_handler:f") in refused.value.message


def test_corrected_code_of_the_same_name_runs_in_the_same_process_as_the_plan_means_it(place):
    """Whoever goes on with the code before has it still. Dataclasses look their module up by its name."""
    code = """
from __future__ import annotations
from dataclasses import dataclass
@dataclass
class Settings:
    value: bytes
def f(record):
    return record._replace(value=Settings({0!r}).value)
"""
    found = []
    for value in (b"first", b"corrected"):
        (place / "corrected_handler.py").write_text(code.format(value))
        function = "corrected_handler:f"
        found.append(Handler(function=function, sha256=source_digest(function)).load())
    assert [handle(RECORD) for handle in found] == [RECORD._replace(value=v) for v in (b"first", b"corrected")]


def test_module_is_compiled_as_it_stands_by_itself(place):
    (place / "annotated_handler.py").write_text("def f(record: bytes):\n    return f.__annotations__['record']\n")
    with pytest.raises(HandlerFailed, match="returned a type"):
        Handler(function="annotated_handler:f", sha256=source_digest("annotated_handler:f")).load()(RECORD)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("no_such_module:f", "there is no module no_such_module"),
        ("no_such_package.module:f", "ModuleNotFoundError"),
        ("sys:f", "there is no module sys in a file"),
        ("present_handler:g", "g is no function there"),
        ("present_handler:number", "number is no function there"),
        ("broken_handler:f", "ValueError (broken_handler.py, line 2)"),
        ("leaving_handler:f", "SystemExit (leaving_handler.py, line 1)"),
        ("misspelt_handler:f", "SyntaxError (misspelt_handler.py, line 1)"),
        ("broken_package.module:f", "SystemExit (__init__.py, line 1)"),
    ],
)
def test_function_that_cannot_be_loaded_is_refused_with_what_to_do(place, function, why):
    (place / "present_handler.py").write_text("number = 1\n")
    (place / "broken_handler.py").write_text("\nint('secret')\n")
    (place / "leaving_handler.py").write_text("raise SystemExit('secret')\n")
    (place / "misspelt_handler.py").write_text("key = 'secret\n")
    (place / "broken_package").mkdir()
    (place / "broken_package" / "__init__.py").write_text("raise SystemExit('secret')\n")
    with pytest.raises(BadInput) as refused:
        Handler(function=function, sha256=source_digest(function)).load()
    assert function in refused.value.message
    assert why in refused.value.message
    assert "secret" not in "".join(traceback.format_exception(refused.value))
    assert refused.value.remedy


@pytest.mark.parametrize("name", [b"", b"plain", "ü".encode(), b"\xff\x00"])
def test_names_of_headers_are_the_same_bytes_again(name):
    assert encoded(decoded(name)) == name
