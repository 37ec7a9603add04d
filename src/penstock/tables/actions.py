"""What a table's log says about a data file."""

from deltalake.transaction import AddAction

from penstock.model.epoch import DataFile


def add_action(file: DataFile) -> AddAction:
    """Answer the entry that makes a file part of the table."""
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=int(file.modified_at.timestamp() * 1000),
        data_change=True,
        stats=file.statistics_json,
    )
