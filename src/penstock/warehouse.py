"""Open the warehouse, the place of new tables, with its credentials."""

from dataclasses import dataclass, replace

from penstock.errors import Code, UserError
from penstock.model.options import option_fields, option_key, parse_options
from penstock.model.secrets import Sealed
from penstock.secrets.vault import Vault
from penstock.storage.options import StoreOptions, check_access, seal
from penstock.tables.delta import DeltaTables
from penstock.tables.folder import below

_PROBE = "_penstock-probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseKeys:
    """The bucket options of the warehouse: from a secret, else from the environment."""

    secret: str
    vault: Vault

    def options(self) -> StoreOptions:
        """Return the options with their current values."""
        if not self.secret:
            return StoreOptions()
        known = {option_key(f) for f in option_fields(StoreOptions)}
        values = self.vault.reveal_all(self.secret, known=known)
        origins = tuple((key, f"SECRET '{self.secret}'") for key, _ in values)
        parsed = parse_options(
            StoreOptions, values, what=f'secret "{self.secret}"', origins=origins
        )
        options = replace(parsed, origins=origins)
        check_access(options)
        return options

    def seal(self, options: StoreOptions) -> Sealed:
        """Encrypt the options for tasks."""
        return seal(options, self.vault.sealed_for_tasks)


def open_warehouse(location: str, *, secret: str, vault: Vault) -> DeltaTables:
    """Return the tables of a warehouse, without a request to it."""
    keys = WarehouseKeys(secret=secret, vault=vault)
    return DeltaTables(location, options=keys.options, seal=keys.seal)


def try_warehouse(tables: DeltaTables) -> str:
    """Write, read and delete a small object in the warehouse; return the finding."""
    folder = tables.folder(below(tables.warehouse, _PROBE))
    key = folder.key("probe")
    folder.store.make_folder(folder.root)
    folder.store.delete_below(f"{folder.root}/")
    folder.store.make_folder(folder.root)
    first, second = (folder.store.write_new(key, text) for text in (b"one", b"two"))
    content = folder.store.read_bytes(key)
    folder.store.delete_below(f"{folder.root}/")
    if not first or second or content != b"one":
        raise UserError(
            f'warehouse "{tables.warehouse}" lets two writers create the same object',
            code=Code.STORAGE_ERR,
            detail="Commits would overwrite each other.",
            hint="Use a store that supports conditional puts (If-None-Match).",
        )
    return f"{tables.warehouse} can be written and read; of two writers one wins"
