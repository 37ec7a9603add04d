"""What is remembered: jobs, events, ledger, leases, tables."""
