-- What makes a mutation happen once: operations, reserved keys, approvals, answered writes, and messages to applications.

ALTER TABLE runs ADD COLUMN operation_id BLOB;

-- Whether the organization has a result webhook is a column, so that a run's end can ask for it without opening a seal.
ALTER TABLE orgs ADD COLUMN announces INTEGER NOT NULL DEFAULT 0;

-- Where an organization's signed messages go, and what they are signed with. A table of its own: few have any, and what
-- is sealed is sealed anew by row number, which `orgs` has none of.
CREATE TABLE hooks (
    org_id BLOB PRIMARY KEY REFERENCES orgs (id),
    doc    BLOB NOT NULL -- sealed
);

-- One operation belongs to one run. `next_at` is when it is to be looked at.
CREATE TABLE operations (
    seq         INTEGER PRIMARY KEY,
    org_id      BLOB NOT NULL,
    run_id      BLOB NOT NULL,
    id          BLOB NOT NULL,
    endpoint_id BLOB NOT NULL,
    state       TEXT NOT NULL,
    step        INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    intent      TEXT NOT NULL,
    body        BLOB, -- sealed
    attempts    INTEGER NOT NULL,
    looks       INTEGER NOT NULL,
    sent_at     INTEGER,
    next_at     INTEGER,
    receipt     BLOB, -- sealed
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);
CREATE UNIQUE INDEX operations_by_run ON operations (run_id);
CREATE INDEX operations_by_id ON operations (id);
CREATE INDEX operations_by_time ON operations (org_id, created_at, id);
CREATE INDEX operations_due ON operations (next_at) WHERE next_at IS NOT NULL;

-- Idempotency keys of agents. A row is the whole reservation: it lives as long as what it stands for.
CREATE TABLE reservations (
    org_id       BLOB NOT NULL,
    agent_key    BLOB NOT NULL,
    key          TEXT NOT NULL,
    run_id       BLOB NOT NULL,
    content_hash BLOB NOT NULL,
    expires_at   INTEGER NOT NULL,
    PRIMARY KEY (org_id, agent_key, key)
) WITHOUT ROWID;
CREATE INDEX reservations_by_run ON reservations (run_id);
CREATE INDEX reservations_by_expiry ON reservations (expires_at);

CREATE TABLE approvals (
    id              BLOB PRIMARY KEY,
    org_id          BLOB NOT NULL,
    run_id          BLOB NOT NULL,
    risk            TEXT,
    state           TEXT NOT NULL,
    stage           TEXT NOT NULL,
    call_hash       BLOB NOT NULL,
    setting_hash    BLOB NOT NULL,
    idempotency_key TEXT,
    reviewer_until  INTEGER,
    expires_at      INTEGER NOT NULL,
    decided_by      TEXT,
    note            TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
);
CREATE UNIQUE INDEX approvals_by_run ON approvals (run_id);
CREATE INDEX approvals_by_time ON approvals (org_id, created_at, id);
CREATE INDEX approvals_open ON approvals (org_id, call_hash) WHERE state = 'open';

-- What hangs on a run goes with it, whoever deletes it. A reservation that is still live keeps its run.
CREATE TRIGGER runs_deleted AFTER DELETE ON runs BEGIN
    DELETE FROM operations WHERE run_id = OLD.id;
    DELETE FROM approvals WHERE run_id = OLD.id;
    DELETE FROM reservations WHERE run_id = OLD.id;
END;

-- Writes of the tenant's and the operator's API that came with an Idempotency-Key. States: `reserved` (asked for),
-- `made` (set in the transaction of the write itself), `answered`, `lost` (made, and a crash came before the answer).
CREATE TABLE writes (
    scope        TEXT NOT NULL,
    key          TEXT NOT NULL,
    content_hash BLOB NOT NULL,
    state        TEXT NOT NULL,
    answer       BLOB, -- sealed; only when answered
    expires_at   INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX writes_by_expiry ON writes (expires_at);

CREATE TABLE deliveries (
    id         BLOB PRIMARY KEY,
    org_id     BLOB NOT NULL,
    event      TEXT NOT NULL,
    body       TEXT NOT NULL,
    state      TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    next_at    INTEGER,
    last_error TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE INDEX deliveries_by_time ON deliveries (org_id, created_at, id);
CREATE INDEX deliveries_due ON deliveries (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX deliveries_done ON deliveries (updated_at) WHERE state <> 'pending';
