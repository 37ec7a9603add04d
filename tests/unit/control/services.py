"""Services for statements that need neither Spark nor a home folder."""

from pathlib import Path

from penstock.catalog.catalog import Catalog
from penstock.clock import SystemClock
from penstock.control.execute import Services
from penstock.control.result import Analyzer
from penstock.secrets.vault import Vault
from penstock.sources.registry import Sources
from penstock.testing.memory_tables import MemoryTables


def services(
    catalog: Catalog, *, vault: Vault | None = None, warehouse_secret: str = ""
) -> Services:
    """Return services on a catalog, with tables in memory."""
    clock = SystemClock()
    used = vault or Vault(catalog, key_file=Path("no-such-folder/secret.key"))
    return Services(
        catalog=catalog,
        open_tables=MemoryTables,
        open_analyzer=_no_analyzer,
        clock=clock,
        vault=used,
        sources=Sources(catalog=catalog, vault=used, clock=clock),
        warehouse_secret=warehouse_secret,
    )


def _no_analyzer() -> Analyzer:
    raise AssertionError("the statement needs no Spark")
