"""The rejects of a job as a Delta table; every commit carries its number as a transaction."""

from collections.abc import Sequence

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError

from penstock.errors import Code, ExternalError
from penstock.model.epoch import DataFile
from penstock.storage.objects import said_by, storage_error
from penstock.tables import log
from penstock.tables.actions import add_action
from penstock.tables.delta_schema import schema_text
from penstock.tables.folder import LOG_FOLDER, TableFolder
from penstock.tables.rejects import REJECT_COLUMNS


class DeltaRejects:
    """The newest snapshot of a job's rejects; the table is made when it is first needed."""

    def __init__(self, folder: TableFolder, job_id: str) -> None:
        self._folder = folder
        self._app_id = f"{job_id}/rejects"
        try:
            self._table = DeltaTable.create(
                folder.location,
                Schema.from_json(schema_text(REJECT_COLUMNS)),
                mode="ignore",
                storage_options=dict(folder.library_options) or None,
            )
            folder.store.sync([folder.key(LOG_FOLDER), folder.root])
        except (DeltaError, OSError, ValueError) as error:
            raise storage_error(
                f'rejects at "{folder}" could not be opened', error, hidden=folder.hidden
            ) from error

    @property
    def newest_number(self) -> int:
        """The newest commit number whose rejects are visible, 0 if there is none."""
        return self._table.transaction_version(self._app_id) or 0

    def commit(self, number: int, files: Sequence[DataFile]) -> None:
        """Make the reject files of a commit visible, unless they are."""
        try:
            self._table.update_incremental()
            if self.newest_number >= number:
                return
            self._table.create_write_transaction(
                [add_action(file) for file in files],
                mode="append",
                schema=self._table.schema(),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(self._app_id, number)]
                ),
            )
            self._table.update_incremental()
            entry = log.log_entry(self._table.version())
            self._folder.store.sync(map(self._folder.key, (entry, LOG_FOLDER)))
        except (DeltaError, OSError) as error:
            # Whether it landed is seen by whoever settles the rejects next.
            raise ExternalError(
                f"rejects of commit {number} could not be committed",
                code=Code.TABLE_ERR,
                detail=f"{said_by(error, hidden=self._folder.hidden)}.",
                hint="They are committed before the job loads on.",
            ) from error
