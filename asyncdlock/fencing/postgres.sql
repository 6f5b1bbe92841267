-- Fencing for PostgreSQL. Safe to run again; everything lives in the schema that is first in the search path.

-- The highest fence that was seen, for each lock that guards something.
CREATE TABLE IF NOT EXISTS asyncdlock_fences (
    key   text   PRIMARY KEY,
    fence bigint NOT NULL CHECK (fence > 0)
);

-- Says which fence this transaction writes with, and raises the mark of its lock. The row stays locked until the
-- transaction ends: a newer holder waits for it, and after that no older one can commit.
CREATE OR REPLACE FUNCTION asyncdlock_guard(lock text, token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    latest bigint;
BEGIN
    INSERT INTO asyncdlock_fences AS marks (key, fence) VALUES (lock, token)
        ON CONFLICT (key) DO UPDATE SET fence = token WHERE marks.fence <= token;
    IF NOT FOUND THEN
        SELECT fence INTO latest FROM asyncdlock_fences WHERE key = lock;
        RAISE EXCEPTION 'stale fencing token' USING ERRCODE = 'AF001', DETAIL = latest::text;
    END IF;
    PERFORM set_config('asyncdlock.fence', token::text, true);
END $$;

-- Protects a table against every writer. Its rows carry a column `fence`; a write is let through only in a
-- transaction that has called asyncdlock_guard, and only if no higher fence has written the row.
CREATE OR REPLACE FUNCTION asyncdlock_protect() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    token bigint := nullif(current_setting('asyncdlock.fence', true), '')::bigint;
BEGIN
    IF token IS NULL THEN
        RAISE EXCEPTION 'table % is fenced: call asyncdlock_guard(key, fence) in this transaction', TG_TABLE_NAME
            USING ERRCODE = 'AF002';
    END IF;
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'table % is fenced: its rows are deleted one by one', TG_TABLE_NAME USING ERRCODE = 'AF002';
    END IF;
    IF TG_OP <> 'INSERT' AND OLD.fence > token THEN
        RAISE EXCEPTION 'stale fencing token' USING ERRCODE = 'AF001', DETAIL = OLD.fence::text;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    NEW.fence := token;
    RETURN NEW;
END $$;
