"""Shards of an Amazon Kinesis stream as a source."""
