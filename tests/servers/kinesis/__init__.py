"""An Amazon Kinesis Data Streams server for tests and demos, with faults on request."""
