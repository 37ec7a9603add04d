"""Tables, and reports of running jobs, in every store of the catalog."""

from dataclasses import replace
from datetime import timedelta

from penstock.catalog.catalog import Catalog
from penstock.catalog.status import JobReport, put
from penstock.errors import Code, UserError
from penstock.model.job import Status, StatusCode
from tests.contract.catalog.building import JOB, START, TABLE, SqliteStore, create_job
from tests.error_values import raises


def test_a_table_is_stored_with_every_field(store: SqliteStore) -> None:
    other = replace(
        TABLE,
        name="clicks",
        id="table-2",
        managed=False,
        created_at=START + timedelta(microseconds=1),
        watermark_column="Clicked at",
        watermark_delay_ms=2**40,
    )
    store.open().create_table(TABLE)
    store.open().create_table(other)

    assert store.open().table("orders") == TABLE
    assert store.open().tables() == (other, TABLE)


def test_a_missing_table_is_not_found(catalog: Catalog) -> None:
    assert catalog.table("orders") is None
    assert catalog.tables() == ()


def test_an_existing_table_name_is_refused(catalog: Catalog) -> None:
    catalog.create_table(TABLE)

    with raises(UserError, Code.ALREADY_EXISTS_ERR, '"orders"') as refusal:
        catalog.create_table(replace(TABLE, id="table-2"))

    assert refusal.value.code is Code.ALREADY_EXISTS_ERR
    assert catalog.table("orders") == TABLE


def test_a_watermark_is_set_changed_and_removed(store: SqliteStore) -> None:
    other = replace(TABLE, name="clicks", id="table-2", watermark_column="at")
    catalog = store.open()
    catalog.create_table(TABLE)
    catalog.create_table(other)

    catalog.set_watermark("orders", "placed_at", 300_000)
    first = store.open().table("orders")
    catalog.set_watermark("orders", "paid_at", 0)
    second = store.open().table("orders")
    catalog.set_watermark("orders", None, 0)

    assert first == replace(TABLE, watermark_column="placed_at", watermark_delay_ms=300_000)
    assert second == replace(TABLE, watermark_column="paid_at", watermark_delay_ms=0)
    assert store.open().tables() == (other, TABLE)


def test_a_missing_table_gets_no_watermark(catalog: Catalog) -> None:
    with raises(UserError, Code.META_NOT_FOUND_ERR, '"orders"', hint=["SHOW TABLES"]):
        catalog.set_watermark("orders", "placed_at", 0)

    assert catalog.tables() == ()


def test_a_deleted_table_is_not_found(catalog: Catalog) -> None:
    catalog.create_table(TABLE)

    catalog.delete_table("orders")
    catalog.delete_table("orders")

    assert catalog.tables() == ()


def test_a_table_that_jobs_load_cannot_be_deleted(catalog: Catalog) -> None:
    create_job(catalog, "b", "job-1")
    create_job(catalog, "a", "job-2")

    with raises(UserError, Code.STATE_ERR, "jobs", '"a"', '"b"') as refusal:
        catalog.delete_table("orders")

    assert refusal.value.code is Code.STATE_ERR
    assert catalog.table("orders") == TABLE


def test_a_table_whose_job_was_dropped_can_be_deleted(catalog: Catalog) -> None:
    create_job(catalog)
    catalog.delete_job(JOB)

    catalog.delete_table("orders")

    assert catalog.tables() == ()


def test_a_report_has_the_latest_status_of_a_job(store: SqliteStore) -> None:
    catalog = store.open()
    before = create_job(catalog)
    assert catalog.report(JOB).status is None

    idle = Status(code=StatusCode.IDLE, fields=(("until", "2026-03-01T12:00:00+00:00"),))
    catalog.set_status(JOB, Status(code=StatusCode.LACKS_CAPABILITY))
    catalog.set_status(JOB, idle)

    assert store.open().report(JOB).status == idle
    assert store.open().reports() == {JOB: JobReport(status=idle)}
    assert catalog.job_by_id(JOB) == before


def test_a_dropped_job_has_no_report(catalog: Catalog) -> None:
    catalog.set_status(JOB, Status(code=StatusCode.IDLE))

    assert catalog.reports() == {}


def test_a_status_of_a_later_version_does_not_hide_the_reports_of_other_jobs(
    catalog: Catalog,
) -> None:
    create_job(catalog, "a", "job-1")
    create_job(catalog, "b", "job-2")
    with catalog._database.write() as connection:
        put(connection, "job-1", text='{"is": "Status", "code": "LATER", "fields": []}')
        put(connection, "job-2", memory="known")

    assert catalog.report("job-2").memory == "known"
