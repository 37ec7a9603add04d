"""Known differences between kinesis-local and AWS: by test, a description and a value."""

from typing import Any

DEVIATIONS: dict[str, tuple[str, Any]] = {
    "test_a_page_of_shards_has_up_to_a_thousand": ("a page has at most 100", 100),
    "test_put_records_accepts_at_most_five_hundred_records": ("501 records are accepted", ""),
    "test_a_timestamp_in_the_future_is_refused_on_an_empty_shard": ("it is accepted", ""),
    "test_a_sequence_number_of_another_shard_is_refused": (
        "the server searches the number and does not find it",
        "ResourceNotFoundException",
    ),
    "test_a_sequence_number_of_a_deleted_stream_is_refused": (
        "the server searches the number and does not find it",
        "ResourceNotFoundException",
    ),
    "test_an_invalid_iterator_is_refused": ("the response is HTTP 500", "500"),
    "test_the_lag_is_the_distance_to_the_current_time": (
        "the lag is the distance to the newest record",
        "distance to the newest record",
    ),
    "test_the_ending_number_of_a_closed_shard_is_above_its_records": (
        "the number is 2^63 - 1, below the number of every record",
        "below",
    ),
}
