"""Jars come by checksum or not at all. The repository here is a directory, laid out as Maven 2."""

import hashlib
from pathlib import Path

import pytest

from demo import jars

A, B = "org.example:alpha:1.0", "org.example.deep:beta_2.13:2.0-rc1"
ARCHIVE = "org.example:gamma:3.0:all@tar.gz"
CONTENT = {A: b"alpha's classes", B: b"beta's classes"}


class Repository:
    """A Maven 2 repository in a directory, and a lock file over it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "repository"
        self.cache = root / "cache"
        self.lock_file = root / "jars.lock"
        for coordinates, content in CONTENT.items():
            self.publish(coordinates, content)
        self.lock({c: hashlib.sha256(content).hexdigest() for c, content in CONTENT.items()})

    def path(self, coordinates: str) -> Path:
        group, artifact, version, *more = coordinates.split(":")
        end = f"-{more[0].replace('@', '.')}" if more else ".jar"
        return self.root.joinpath(*group.split("."), artifact, version, f"{artifact}-{version}{end}")

    def publish(self, coordinates: str, content: bytes) -> None:
        self.path(coordinates).parent.mkdir(parents=True, exist_ok=True)
        self.path(coordinates).write_bytes(content)

    def lock(self, checksums: dict[str, str]) -> None:
        lines = [f'"{coordinates}" = "{checksum}"' for coordinates, checksum in checksums.items()]
        self.lock_file.write_text("\n".join(["[demo]", *lines]))

    def paths(self) -> list[Path]:
        return jars.paths("demo", lock_file=self.lock_file, cache=self.cache)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path)
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, made.root.as_uri())
    return made


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any use of the resolver fails."""
    monkeypatch.setattr(jars, "_ivy_jar", lambda: pytest.fail("the resolver was started"))


def test_empty_cache_asked_for_a_set_holds_every_jar_as_published(repository: Repository) -> None:
    found = repository.paths()
    assert [path.name for path in found] == ["alpha-1.0.jar", "beta_2.13-2.0-rc1.jar"]
    assert [path.read_bytes() for path in found] == list(CONTENT.values())


def test_archive_of_a_classifier_is_fetched_under_its_own_name(repository: Repository) -> None:
    content = {A: CONTENT[A], ARCHIVE: b"gamma's server"}
    repository.publish(ARCHIVE, content[ARCHIVE])
    repository.lock({name: hashlib.sha256(data).hexdigest() for name, data in content.items()})
    found = repository.paths()
    assert [path.name for path in found] == ["alpha-1.0.jar", "gamma-3.0-all.tar.gz"]
    assert [path.read_bytes() for path in found] == list(content.values())


def test_complete_cache_asked_again_fetches_nothing(repository: Repository, request: pytest.FixtureRequest) -> None:
    found = repository.paths()
    before = [path.stat().st_mtime_ns for path in found]
    request.getfixturevalue("unreachable")
    assert repository.paths() == found
    assert [path.stat().st_mtime_ns for path in found] == before


def test_altered_and_missing_jars_asked_again_are_fetched_again(repository: Repository) -> None:
    alpha, beta = repository.paths()
    alpha.write_bytes(b"something else")
    beta.unlink()
    assert [path.read_bytes() for path in repository.paths()] == list(CONTENT.values())


def test_repository_serves_another_file_refused_and_cache_kept(repository: Repository) -> None:
    alpha, beta = repository.paths()
    beta.unlink()
    repository.publish(B, b"not what was locked")
    with pytest.raises(jars.JarError, match=r"checksum mismatch") as raised:
        repository.paths()
    assert B in str(raised.value)
    assert hashlib.sha256(CONTENT[B]).hexdigest() in str(raised.value)
    assert alpha.read_bytes() == CONTENT[A]
    assert not beta.exists()
    assert sorted(path.name for path in repository.cache.iterdir()) == ["demo"], "work files are left"


def test_jar_is_not_published_error_names_it_and_the_variable(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.path(A).unlink()
    with pytest.raises(jars.JarError, match=jars.REPOSITORY_VARIABLE) as raised:
        repository.paths()
    assert A in str(raised.value)
    assert B not in str(raised.value).splitlines()[0]


def test_repository_with_a_password_fails_error_does_not_show_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing listens on the discard port.
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, "http://reader:hunter2@127.0.0.1:9/maven")
    with pytest.raises(jars.JarError) as raised:
        repository.paths()
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[other]\n"g:a:1" = "0"', "no set 'demo'"),
        ('[demo]\n"g:a" = "0"', "group:artifact:version"),
        ('[demo]\n"g:a:1\'/>" = "0"', "group:artifact:version"),
        ('[demo]\n"g:a:1:all" = "0"', "group:artifact:version"),
        ('[demo]\n"g:a:1" = "abc"', "64 hexadecimal"),
        ('[demo]\n"g:a:1" = 5', "64 hexadecimal"),
    ],
)
def test_lock_file_is_malformed_refused_by_entry(tmp_path: Path, text: str, expected: str) -> None:
    lock_file = tmp_path / "jars.lock"
    lock_file.write_text(text)
    with pytest.raises(jars.JarError, match=expected):
        jars.locked("demo", lock_file=lock_file)


@pytest.mark.parametrize("jar_set", ["kafka", "spark", "apicurio"])
def test_lock_file_of_the_project_names_each_jar_once_and_no_host(jar_set: str) -> None:
    locked = jars.locked(jar_set)
    assert len({jar.file_name for jar in locked}) == len(locked) == len({jar.sha256 for jar in locked})
    assert "://" not in jars.LOCK_FILE.read_text()
