"""Fetch the jars of jars.lock, once, and hand out their paths.

The Ivy jar inside pyspark does the fetching, so Python and a JDK are all that a machine needs. It asks its default
repository, or the one that KAFKA_MIGRATION_MAVEN_REPOSITORY names (https:// or file://, laid out as Maven 2).
Ivy's answer is not trusted: a jar counts only when its SHA-256 is the one in the lock file.
"""

import hashlib
import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from demo.errors import DemoError
from demo.java import java_executable

REPOSITORY_VARIABLE = "KAFKA_MIGRATION_MAVEN_REPOSITORY"
ROOT = Path(__file__).resolve().parent.parent
LOCK_FILE = ROOT / "jars.lock"
CACHE_DIRECTORY = ROOT / ".cache" / "jars"
FETCH_TIMEOUT_SECONDS = 600

_PART = r"[A-Za-z0-9._-]+"
_COORDINATES = re.compile(rf"{_PART}:{_PART}:{_PART}(:{_PART}@{_PART})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_USER_INFO = re.compile(r"://[^/@\s]+@")


class JarError(DemoError):
    """Jars are unavailable, or are not what the lock file says; the message names the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedJar:
    """One jar of the lock file, or another archive, which has a classifier: Maven coordinates and the SHA-256 of the
    file, in lower-case hexadecimal."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """Name of the jar in the cache, as Maven repositories name it."""
        return f"{self.artifact}-{self.version}{self.classifier and f'-{self.classifier}'}.{self.extension}"

    @property
    def coordinates(self) -> str:
        """`group:artifact:version`, without the classifier."""
        return f"{self.group}:{self.artifact}:{self.version}"


def locked(jar_set: str, *, lock_file: Path = LOCK_FILE) -> list[LockedJar]:
    """The jars of one set, in the order of the lock file.

    Raises:
        JarError: the set is unknown, or an entry is malformed.
    """
    sets = tomllib.loads(lock_file.read_text(encoding="utf-8"))
    if jar_set not in sets:
        raise JarError(f"{lock_file.name} has no set {jar_set!r}; it has {', '.join(sorted(sets))}.")
    jars = []
    for coordinates, sha256 in sets[jar_set].items():
        if not _COORDINATES.fullmatch(coordinates):
            raise JarError(
                f"{lock_file.name} [{jar_set}] {coordinates!r}: expected group:artifact:version[:classifier@extension]."
            )
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise JarError(f"{lock_file.name} [{jar_set}] {coordinates}: expected a SHA-256 of 64 hexadecimal digits.")
        group, artifact, version, *more = coordinates.split(":")
        classifier, _, extension = (more[0] if more else "@jar").partition("@")
        jars.append(
            LockedJar(
                group=group,
                artifact=artifact,
                version=version,
                sha256=sha256,
                classifier=classifier,
                extension=extension,
            )
        )
    return jars


def paths(jar_set: str, *, lock_file: Path = LOCK_FILE, cache: Path = CACHE_DIRECTORY) -> list[Path]:
    """Verified paths of one set's jars, fetched if any is missing from the cache or altered.

    A call that finds everything in place only reads the files again. Callers side by side do not disturb each other:
    each fetches into a directory of its own, and a jar appears under its final name in one step.

    Raises:
        JarError: a jar cannot be had, or what the repository holds has another checksum. The cache keeps what it had.
    """
    jars = locked(jar_set, lock_file=lock_file)
    directory = cache / jar_set
    absent = [jar for jar in jars if not _is_intact(jar, directory / jar.file_name)]
    if absent:
        directory.mkdir(parents=True, exist_ok=True)
        # On the cache's own file system, so that the replace below is atomic.
        with tempfile.TemporaryDirectory(prefix=f".{jar_set}-", dir=cache) as work:
            fetched = _fetch(absent, Path(work))
            _verify(fetched, lock_file)
            for jar, path in fetched:
                os.replace(path, directory / jar.file_name)
    # Files beside the locked ones are left alone: a broker that still runs may have them open.
    return [directory / jar.file_name for jar in jars]


def class_path(jar_set: str) -> str:
    """The set's jars as the JVM's `-cp` takes them."""
    return os.pathsep.join(str(path) for path in paths(jar_set))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_intact(jar: LockedJar, path: Path) -> bool:
    return path.is_file() and _sha256(path) == jar.sha256


def _verify(fetched: Iterable[tuple[LockedJar, Path]], lock_file: Path) -> None:
    wrong = [
        f"  {jar.coordinates}\n    {lock_file.name} says {jar.sha256}\n    fetched file is {actual}"
        for jar, path in fetched
        if (actual := _sha256(path)) != jar.sha256
    ]
    if wrong:
        raise JarError(
            "checksum mismatch, nothing was put into the cache:\n"
            + "\n".join(wrong)
            + f"\nThe repository serves another file than the one locked. Try another through {REPOSITORY_VARIABLE};"
            + f" edit {lock_file.name} only after comparing with the publisher's checksum."
        )


def _fetch(jars: list[LockedJar], work: Path) -> list[tuple[LockedJar, Path]]:
    """Fetch every jar into `work`, in one JVM."""
    settings, module, libraries = work / "settings.xml", work / "ivy.xml", work / "jars"
    settings.write_text(_settings_xml(os.environ.get(REPOSITORY_VARIABLE)), encoding="utf-8")
    module.write_text(_module_xml(jars), encoding="utf-8")
    command = [
        str(java_executable()),
        f"-Divy.default.ivy.user.dir={work / 'ivy'}",
        *("-jar", str(_ivy_jar())),
        *("-settings", str(settings)),
        *("-cache", str(work / "cache")),
        *("-ivy", str(module)),
        *("-confs", "default"),
        *("-types", "jar"),
        *("-retrieve", f"{libraries}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        run = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JarError(
            f"fetching {len(jars)} jars took over {FETCH_TIMEOUT_SECONDS} s."
            f" Look at the network, or name a nearer repository in {REPOSITORY_VARIABLE}."
        ) from error
    fetched = [(jar, libraries / jar.file_name) for jar in jars]
    missing = [jar for jar, path in fetched if not path.is_file()]
    # Ivy ends with 0 for some unresolved modules, so the files decide. For one that is unresolved it leaves out all.
    if missing:
        output = _USER_INFO.sub("://", run.stdout + run.stderr)
        unresolved = [jar for jar in missing if f"{jar.group}#{jar.artifact};{jar.version}: not found" in output]
        raise JarError(
            f"could not fetch {', '.join(jar.coordinates for jar in unresolved or missing)}. Look at the network,"
            f" or name another repository in {REPOSITORY_VARIABLE} (Maven 2 layout). The resolver's last words:\n"
            + "\n".join(output.splitlines()[-30:])
        )
    return fetched


def of_pyspark(pattern: str = "*.jar") -> list[Path]:
    """Jars that pyspark brings along. Raises JarError if it is not installed."""
    # find_spec, not import: importing pyspark costs most of a second.
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError("pyspark is not installed, and its Ivy fetches the jars. Run `make setup`.")
    return sorted((Path(spec.origin).parent / "jars").glob(pattern))


def _ivy_jar() -> Path:
    found = of_pyspark("ivy-*.jar")
    if not found:
        raise JarError("pyspark holds no jars/ivy-*.jar. Its package is damaged: remove .venv and run `make setup`.")
    return found[-1]


def _settings_xml(repository: str | None) -> str:
    # usepoms=false: coordinates are complete, so no POM, parent POM or BOM need be reachable. No checksums either:
    # Ivy would ask for SHA-1 files, and SHA-256 is checked here.
    root = f" root={quoteattr(repository)}" if repository else ""
    return (
        "<ivysettings><settings defaultResolver='jars'/><property name='ivy.checksums' value=''/><resolvers>"
        f"<ibiblio name='jars' m2compatible='true' usepoms='false'{root}/></resolvers></ivysettings>"
    )


def _module_xml(jars: list[LockedJar]) -> str:
    dependencies = "".join(
        f"<dependency org='{jar.group}' name='{jar.artifact}' rev='{jar.version}' conf='default' transitive='false'>"
        f"<artifact name='{jar.artifact}' type='jar' ext='{jar.extension}'"
        + (f" m:classifier='{jar.classifier}'" if jar.classifier else "")
        + "/></dependency>"
        for jar in jars
    )
    return (
        "<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/maven'>"
        "<info organisation='kafka-migration' module='jars'/>"
        "<configurations><conf name='default'/></configurations>"
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
