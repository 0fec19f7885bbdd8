"""The own PostgreSQL server of a test: that of the benchmarks, with the statements of an administrator."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import psycopg
import pytest

from bench import postgres
from bench.postgres import Postgres
from chappe.errors import ChappeError

_numbers = itertools.count()


@contextlib.contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A running server, or a skip that says how to install one."""
    try:
        postgres.programs()
    except ChappeError as error:
        pytest.skip(str(error))
    with postgres.postgres_server() as server:
        yield server


def administer(server: Postgres, statement: str) -> None:
    """Carry out a statement of an administrator."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(statement)


def new_database(server: Postgres) -> str:
    """The url of a database that nobody else uses."""
    name = f"d{next(_numbers)}"
    administer(server, f"CREATE DATABASE {name}")
    return server.url_of(name)
