-- The relations of a stored catalog of revision 0004. A stored form: later revisions migrate it, and never change this file.
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE tables (
    name TEXT NOT NULL,
    id TEXT NOT NULL,
    location TEXT NOT NULL,
    managed BOOLEAN NOT NULL,
    comment TEXT NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (name),
    UNIQUE (id)
);
CREATE TABLE jobs (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    table_id TEXT NOT NULL,
    snapshot TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name),
    FOREIGN KEY(table_id) REFERENCES tables (id)
);
CREATE INDEX ix_jobs_table_id ON jobs (table_id);
CREATE TABLE events (
    job_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (job_id, number),
    FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE ledger (
    job_id TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    ordinal BIGINT NOT NULL,
    kind VARCHAR(16) NOT NULL,
    outcome VARCHAR(16) NOT NULL,
    number BIGINT,
    epoch BIGINT NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (job_id, attempt_id),
    UNIQUE (job_id, ordinal),
    FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE INDEX ix_ledger_outcome ON ledger (job_id, outcome, kind);
CREATE TABLE ledger_days (
    job_id TEXT NOT NULL,
    day VARCHAR(10) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    outcome VARCHAR(16) NOT NULL,
    attempts BIGINT NOT NULL,
    statistics TEXT NOT NULL,
    PRIMARY KEY (job_id, day, kind, outcome),
    FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE files (
    job_id TEXT NOT NULL,
    "key" TEXT NOT NULL,
    etag TEXT NOT NULL,
    number BIGINT NOT NULL,
    modified_at DATETIME,
    PRIMARY KEY (job_id, "key"),
    FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX ix_files_modified_at ON files (job_id, modified_at);
CREATE TABLE leases (
    job_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    expires_at DATETIME NOT NULL,
    PRIMARY KEY (job_id),
    FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE statuses (
    job_id TEXT NOT NULL,
    text TEXT NOT NULL,
    requests TEXT,
    memory TEXT,
    PRIMARY KEY (job_id),
    FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE TABLE secrets (
    name TEXT NOT NULL,
    value_by_key TEXT NOT NULL,
    key_id VARCHAR(32) NOT NULL,
    job_id TEXT,
    created_at DATETIME NOT NULL,
    changed_at DATETIME NOT NULL,
    PRIMARY KEY (name),
    FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
CREATE INDEX ix_secrets_job_id ON secrets (job_id);
CREATE TABLE file_windows (
    job_id TEXT NOT NULL,
    pruned_before DATETIME NOT NULL,
    PRIMARY KEY (job_id),
    FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO alembic_version VALUES ('0004');
