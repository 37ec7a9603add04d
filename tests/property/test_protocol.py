"""The protocol keeps its promises through every history that was tried."""

from hypothesis import HealthCheck, settings

from tests.property.protocol.machine import ProtocolMachine

TestProtocol = ProtocolMachine.TestCase
TestProtocol.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
