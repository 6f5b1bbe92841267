"""The statements of the SQLite store."""

APPLICATION_ID = 0x41444C52
SCHEMA = """
CREATE TABLE IF NOT EXISTS resource (
    key        TEXT PRIMARY KEY,
    mark_token INTEGER NOT NULL,
    mark_seq   INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    digest     TEXT NOT NULL,
    body       BLOB,
    recent     BLOB NOT NULL DEFAULT x''
);
CREATE TABLE IF NOT EXISTS log (
    seq       INTEGER PRIMARY KEY,
    key       TEXT NOT NULL,
    token     INTEGER NOT NULL,
    fence_seq INTEGER NOT NULL,
    outcome   TEXT NOT NULL,
    seen      INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    started   INTEGER NOT NULL,
    decided   INTEGER NOT NULL,
    owner     TEXT,
    digest    TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS health (only INTEGER PRIMARY KEY CHECK (only = 1), checks INTEGER NOT NULL);
"""

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
STATE = "SELECT mark_token, mark_seq, token, seq, version, digest, recent FROM resource WHERE key = ?"
VALUE = "SELECT mark_token, mark_seq, token, seq, version, body FROM resource WHERE key = ?"
PUT = """
INSERT INTO resource (key, mark_token, mark_seq, token, seq, version, digest, recent, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    mark_token = excluded.mark_token, mark_seq = excluded.mark_seq, token = excluded.token,
    seq = excluded.seq, version = excluded.version, digest = excluded.digest, recent = excluded.recent,
    body = excluded.body
"""
RAISE = """
INSERT INTO resource (key, mark_token, mark_seq, token, seq, version, digest) VALUES (?, ?, ?, 0, 0, 0, '')
ON CONFLICT (key) DO UPDATE SET mark_token = excluded.mark_token, mark_seq = excluded.mark_seq
"""
APPEND = "INSERT INTO log VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
PAGE = "SELECT * FROM log WHERE seq > ? ORDER BY seq LIMIT ?"
CHECK = "INSERT INTO health VALUES (1, 1) ON CONFLICT (only) DO UPDATE SET checks = checks + 1"
# Numbers are dense, and the newest row stays: the next one gets a number that was never given.
NEWEST = "SELECT max(seq) FROM log"
LAST_TOO_OLD = "SELECT max(seq) FROM (SELECT seq, decided FROM log ORDER BY seq LIMIT ?) WHERE decided < ?"
DROP = "DELETE FROM log WHERE seq IN (SELECT seq FROM log WHERE seq <= ? ORDER BY seq LIMIT ?)"
