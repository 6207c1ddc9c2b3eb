-- Notes: small documents by name, such as usual prices and when a trigger last fired.

CREATE TABLE drumbeat.notes (
    name       TEXT PRIMARY KEY,
    value      @json NOT NULL,
    updated_at BIGINT NOT NULL
);
