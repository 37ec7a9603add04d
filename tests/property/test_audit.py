"""Every file is loaded once, whatever order it comes in and however the bucket is listed."""

from hypothesis import HealthCheck, given, settings

from tests.property.audit.histories import histories
from tests.property.audit.steps import History
from tests.property.audit.world import play


@settings(max_examples=int(__import__("os").environ.get("N","400")), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_every_file_is_loaded_once(history: History) -> None:
    play(history)
