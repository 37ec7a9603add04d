"""Where kinesis-local does something else than AWS: by test, in words, as a value."""

from typing import Any

DEVIATIONS: dict[str, tuple[str, Any]] = {
    "test_a_page_of_shards_holds_up_to_a_thousand": ("a page holds at most 100", 100),
    "test_put_records_takes_five_hundred": ("501 records are accepted", ""),
    "test_a_timestamp_in_the_future_is_refused_on_an_empty_shard": ("it is accepted", ""),
    "test_a_sequence_number_of_another_shard_is_refused": (
        "the number is looked for, and not found",
        "ResourceNotFoundException",
    ),
    "test_a_number_of_the_stream_that_was_before_is_refused": (
        "the number is looked for, and not found",
        "ResourceNotFoundException",
    ),
    "test_what_is_no_iterator_is_refused": ("the answer is HTTP 500", "500"),
    "test_a_reader_is_behind_the_present": (
        "the distance is that to the newest record, not to the present",
        "behind the newest record",
    ),
    "test_the_last_number_of_a_closed_shard_is_above_its_records": (
        "the number is 2^63 - 1, below every record's",
        "below",
    ),
}
