"""What the gate runs, by parts: `nox -l` lists them, `nox -s tests-3.13` runs one."""

from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = False

CI = Path(__file__).parent / ".ci"
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


@nox.session(tags=["static"])
def lint(session: nox.Session) -> None:
    """ruff: rules and format."""
    session.install("ruff>=0.8")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(tags=["static"])
def types(session: nox.Session) -> None:
    """mypy --strict over the product, its tests and its benchmarks; every public type known to pyright."""
    session.install("-e", ".[dev]")
    session.run("mypy")
    session.run("pyright", "--verifytypes", "asyncdlock", "--ignoreexternal")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The README's test command; arguments go to pytest."""
    session.install("-e", ".[dev]")
    session.run("pytest", *session.posargs)


@nox.session(python="3.11")
def oldest(session: nox.Session) -> None:
    """The suite with the oldest versions that pyproject.toml admits; `tests` takes the newest."""
    pins = Path(session.create_tmp(), "oldest.txt")
    pins.write_text(session.run("python", str(CI / "oldest.py"), silent=True) or "", "utf-8")
    session.install("--constraint", str(pins), "-e", ".[dev]")
    session.run("pytest", *session.posargs)


@nox.session(python=["3.12", "3.13", "3.14"])
def eager(session: nox.Session) -> None:
    """The suite with eager tasks: whatever starts a task before its fields exist fails here."""
    session.install("-e", ".[dev]")
    session.run("pytest", *session.posargs, env={"ASYNCDLOCK_TASKS": "eager"})


@nox.session
def mutants(session: nox.Session) -> None:
    """Plants every bug of tests/mutants in a copy of the tree: each must be noticed by the test it names."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.mutants", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Which lines of the library its own tests reach."""
    session.install("-e", ".[dev]")
    session.run(
        "pytest",
        *("-p", "no:asyncdlock"),  # it would import the library before the counting begins
        *("tests/core", "tests/contract", "tests/redis_queue", "tests/redlock", "tests/backends"),
        *("--cov=asyncdlock", "--cov-report=term-missing:skip-covered"),
        *session.posargs,
    )


@nox.session
def audit(session: nox.Session) -> None:
    """What PyPI knows against the newest of all that the package and its extras bring."""
    session.install("-e", ".[dev,tracing,s3]", "pip-audit")
    session.run("pip-audit", "--skip-editable", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, into site/; `nox -s docs -- serve` shows it while you write."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", *(session.posargs or ["build"]), env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(python=PYTHONS)
def wheel(session: nox.Session) -> None:
    """What a user installs, by itself and with each extra by itself, in clean environments of this Python."""
    session.install("build", "twine", "uv")
    session.run("bash", str(CI / "wheels"), "--each", "python", external=True)
