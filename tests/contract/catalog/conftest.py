"""Every store of the catalog, for the suite that each must pass."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.catalog.catalog import Catalog
from tests.contract.catalog.building import (
    STORES,
    MovableClock,
    SqliteStore,
)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: MovableClock) -> SqliteStore:
    kind: Callable[[Path, MovableClock], SqliteStore] = request.param
    return kind(tmp_path, clock)


@pytest.fixture
def catalog(store: SqliteStore) -> Catalog:
    return store.open()
