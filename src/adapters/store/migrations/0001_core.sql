-- Ids are 16 bytes, times are milliseconds since the epoch, documents are JSON, sealed columns are AEAD ciphertext.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- A deleted organization keeps its row, so that its slug is never given again.
CREATE TABLE orgs (
    id                 BLOB PRIMARY KEY,
    slug               TEXT NOT NULL UNIQUE,
    name               TEXT NOT NULL,
    state              TEXT NOT NULL,
    run_retention_h    INTEGER NOT NULL,
    result_retention_h INTEGER NOT NULL,
    settings           TEXT NOT NULL,
    version            INTEGER NOT NULL,
    revision           INTEGER NOT NULL,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX orgs_live ON orgs (id) WHERE state <> 'deleted';
CREATE INDEX orgs_deleted ON orgs (id) WHERE state = 'deleted';

-- AUTOINCREMENT: a position is never given twice, also when the feed has been emptied.
CREATE TABLE feed (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    org_id   BLOB NOT NULL,
    at       INTEGER NOT NULL
);

CREATE TABLE keys (
    id           BLOB PRIMARY KEY,
    org_id       BLOB NOT NULL REFERENCES orgs (id),
    kind         TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    limits       TEXT NOT NULL,
    confirms     INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    version      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_by_org ON keys (org_id, kind, id);

CREATE TABLE key_groups (
    key_id   BLOB NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    group_id BLOB NOT NULL REFERENCES groups (id),
    PRIMARY KEY (key_id, group_id)
) WITHOUT ROWID;
CREATE INDEX key_groups_by_group ON key_groups (group_id);

CREATE TABLE groups (
    id         BLOB PRIMARY KEY,
    org_id     BLOB NOT NULL REFERENCES orgs (id),
    name       TEXT NOT NULL,
    rules      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (org_id, name)
) WITHOUT ROWID;

CREATE TABLE endpoints (
    id               BLOB PRIMARY KEY,
    org_id           BLOB NOT NULL REFERENCES orgs (id),
    name             TEXT NOT NULL,
    enabled          INTEGER NOT NULL,
    settings         TEXT NOT NULL,
    auth             BLOB NOT NULL, -- sealed
    callback_secrets BLOB NOT NULL, -- sealed
    sync             TEXT NOT NULL,
    sync_due_at      INTEGER,
    version          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX endpoints_due ON endpoints (sync_due_at) WHERE sync_due_at IS NOT NULL AND enabled;

-- The database itself refuses two tools of one organization whose names clash.
CREATE TABLE tools (
    endpoint_id BLOB NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    org_id      BLOB NOT NULL,
    name        TEXT NOT NULL,
    folded_name TEXT NOT NULL,
    spec        TEXT NOT NULL,
    declared    TEXT NOT NULL,
    PRIMARY KEY (endpoint_id, position),
    UNIQUE (org_id, folded_name)
);

CREATE TABLE policies (
    org_id BLOB NOT NULL REFERENCES orgs (id),
    tool   TEXT NOT NULL,
    policy TEXT NOT NULL,
    PRIMARY KEY (org_id, tool)
) WITHOUT ROWID;

CREATE TABLE syncs (
    id          BLOB PRIMARY KEY,
    endpoint_id BLOB NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
    at          INTEGER NOT NULL,
    record      TEXT NOT NULL
);
CREATE INDEX syncs_by_endpoint ON syncs (endpoint_id, at, id);
CREATE INDEX syncs_by_time ON syncs (at);

-- Runs outlive their endpoint, so nothing here refers to it. `due_at` is when an open run is to be looked at.
CREATE TABLE runs (
    seq                     INTEGER PRIMARY KEY,
    org_id                  BLOB NOT NULL,
    id                      BLOB NOT NULL,
    endpoint_id             BLOB NOT NULL,
    endpoint_name           TEXT NOT NULL,
    tool                    TEXT NOT NULL,
    status                  TEXT NOT NULL,
    open                    INTEGER NOT NULL,
    started                 INTEGER NOT NULL,
    intent                  TEXT NOT NULL,
    reason                  TEXT,
    error_code              TEXT,
    error_message           TEXT,
    provider_correlation_id TEXT,
    attempts                TEXT NOT NULL,
    arguments               BLOB, -- sealed
    outcome                 BLOB, -- sealed
    created_at              INTEGER NOT NULL,
    updated_at              INTEGER NOT NULL,
    finished_at             INTEGER,
    expires_at              INTEGER,
    due_at                  INTEGER
);
-- Of the indexes that every run enters, only one begins with the organization: an insert into each of the others lands
-- on the page the insert before it has just used.
CREATE UNIQUE INDEX runs_by_id ON runs (id);
CREATE INDEX runs_by_time ON runs (org_id, created_at, id);
CREATE INDEX runs_with_payload ON runs (created_at) WHERE arguments IS NOT NULL;
CREATE INDEX runs_open ON runs (org_id, created_at, id) WHERE open;
CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_by_correlation ON runs (endpoint_id, provider_correlation_id)
    WHERE provider_correlation_id IS NOT NULL;

CREATE TABLE tokens (
    nonce_hash BLOB PRIMARY KEY,
    run_id     BLOB NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tokens_by_expiry ON tokens (expires_at);

-- States: `early` (belongs to no run yet), `claimed` (its run was found, the settling is under way), `settled`,
-- `late` (its run had ended without a result), `ignored` (its run had a result).
CREATE TABLE callbacks (
    endpoint_id    BLOB NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
    webhook_id     TEXT NOT NULL,
    state          TEXT NOT NULL,
    run_id         BLOB,
    request_id     BLOB,
    correlation_id TEXT,
    body           BLOB, -- sealed; only while the callback waits for its run
    at             INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    PRIMARY KEY (endpoint_id, webhook_id)
);
CREATE INDEX callbacks_waiting ON callbacks (endpoint_id, correlation_id) WHERE body IS NOT NULL;
CREATE INDEX callbacks_by_expiry ON callbacks (expires_at);

CREATE TABLE audit (
    id     BLOB PRIMARY KEY,
    org_id BLOB NOT NULL,
    at     INTEGER NOT NULL,
    entry  TEXT NOT NULL
);
CREATE INDEX audit_by_org ON audit (org_id, at, id);
CREATE INDEX audit_by_time ON audit (at);
