"""Durable state: jobs, events, ledger, leases, tables and secrets."""
