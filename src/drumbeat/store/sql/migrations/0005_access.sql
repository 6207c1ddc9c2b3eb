-- Connections to databases under test, with encrypted secrets; and answers to requests by idempotency key.

CREATE TABLE drumbeat.connections (
    name        TEXT PRIMARY KEY,
    url         TEXT NOT NULL,
    description TEXT,
    key_id      TEXT,
    secret      TEXT,
    is_default  INTEGER NOT NULL DEFAULT 0,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);

CREATE TABLE drumbeat.answers (
    request_key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    status      INTEGER,
    body        TEXT,
    location    TEXT,
    expires_at  BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX answers_by_expiry ON drumbeat.answers (expires_at);
