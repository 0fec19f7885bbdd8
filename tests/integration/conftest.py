"""What several integration tests share: one PostgreSQL server for all of them, with a database for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.postgres import Postgres
from tests.support.postgres import new_database, postgres_server


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def place(server: Postgres) -> str:
    """The url of a database of its own."""
    return new_database(server)
