"""The statements of the PostgreSQL store."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS resource (
    key        text PRIMARY KEY,
    mark_token bigint NOT NULL,
    mark_seq   bigint NOT NULL,
    token      bigint NOT NULL,
    seq        bigint NOT NULL,
    version    bigint NOT NULL,
    digest     text NOT NULL,
    body       bytea,
    -- The mark before the last accepted write: RETURNING knows no OLD before PostgreSQL 18.
    prior_token bigint NOT NULL DEFAULT 0,
    prior_seq   bigint NOT NULL DEFAULT -1
);
ALTER TABLE resource ADD COLUMN IF NOT EXISTS recent bytea NOT NULL DEFAULT '';
CREATE TABLE IF NOT EXISTS resource_log (
    seq       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key       text NOT NULL,
    token     bigint NOT NULL,
    fence_seq bigint NOT NULL,
    outcome   text NOT NULL,
    seen      bigint NOT NULL,
    version   bigint NOT NULL,
    started   bigint NOT NULL,
    decided   bigint NOT NULL,
    owner     text,
    digest    text NOT NULL
);
-- Of the database's own clock: several resources may share the table, and their clocks differ.
ALTER TABLE resource_log ADD COLUMN IF NOT EXISTS logged timestamptz NOT NULL DEFAULT now();
CREATE TABLE IF NOT EXISTS resource_state (
    only_row boolean PRIMARY KEY CHECK (only_row),
    dropped  bigint NOT NULL,
    checks   bigint NOT NULL
);
INSERT INTO resource_state VALUES (true, 0, 0) ON CONFLICT DO NOTHING;
"""
# `$7` tells whether tokens are enforced, `$9` how many bytes of `recent` are kept. A key that was never
# written must also refuse a write that expects a version; one that exists meets the conflict, which
# locks the row and then decides.
WRITE = """
INSERT INTO resource AS r (key, mark_token, mark_seq, token, seq, version, digest, body, recent)
SELECT $1, $2, $3, $2, $3, 1, $4, $5, $8
WHERE coalesce($6::bigint, 0) = 0 OR EXISTS (SELECT FROM resource WHERE key = $1)
ON CONFLICT (key) DO UPDATE SET
    prior_token = r.mark_token, prior_seq = r.mark_seq,
    mark_token = greatest(r.mark_token, excluded.mark_token),
    mark_seq = CASE WHEN (excluded.mark_token, excluded.mark_seq) > (r.mark_token, r.mark_seq)
                    THEN excluded.mark_seq ELSE r.mark_seq END,
    token = excluded.token, seq = excluded.seq, version = r.version + 1,
    digest = excluded.digest, body = excluded.body,
    recent = substring(excluded.recent || r.recent FROM 1 FOR $9::int)
WHERE (NOT $7::boolean OR (excluded.token, excluded.seq) > (r.mark_token, r.mark_seq))
    AND ($6 IS NULL OR r.version = $6)
RETURNING prior_token, prior_seq, version
"""
STATE = "SELECT mark_token, mark_seq, token, seq, version, digest, recent FROM resource WHERE key = $1"
APPEND = """
INSERT INTO resource_log
    (key, token, fence_seq, outcome, seen, version, started, decided, owner, digest)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
VALUE = "SELECT mark_token, mark_seq, token, seq, version, body FROM resource WHERE key = $1"
FENCED_VALUE = """
INSERT INTO resource AS r (key, mark_token, mark_seq, token, seq, version, digest)
VALUES ($1, $2, $3, 0, 0, 0, '')
ON CONFLICT (key) DO UPDATE SET
    mark_token = excluded.mark_token,
    mark_seq = CASE WHEN excluded.mark_token > r.mark_token THEN excluded.mark_seq ELSE r.mark_seq END
WHERE excluded.mark_token >= r.mark_token
RETURNING mark_token, mark_seq, token, seq, version, body
"""
LOWER = """
UPDATE resource AS r SET mark_token = $2, mark_seq = $3
FROM (SELECT key, mark_token, mark_seq FROM resource WHERE key = $1 FOR UPDATE) AS before
WHERE r.key = before.key AND before.mark_token > $2 RETURNING before.mark_token, before.mark_seq
"""
PAGE = """
SELECT seq, key, token, fence_seq, outcome, seen, version, started, decided, owner, digest
FROM resource_log WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3
"""
CHECK = "UPDATE resource_state SET checks = checks + 1"
DROPPED = "SELECT dropped FROM resource_state"
# The last of the $3 oldest rows that is to go: there are $1 newer ones, or it is older than $2 seconds.
LAST_TO_DROP = """
SELECT max(seq) FROM (SELECT seq, logged FROM resource_log ORDER BY seq LIMIT $3) AS oldest,
    (SELECT max(seq) AS newest FROM resource_log) AS log
WHERE seq < newest AND (seq <= newest - $1 OR logged < now() - make_interval(secs => $2))
"""
DROP = "DELETE FROM resource_log WHERE seq <= $1"
DROPPED_TO = "UPDATE resource_state SET dropped = greatest(dropped, $1)"
SETTINGS = """
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
UNION ALL
SELECT 'relpersistence', relpersistence::text FROM pg_class WHERE oid = 'resource'::regclass
"""
