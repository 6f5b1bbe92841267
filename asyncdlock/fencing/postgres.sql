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
    guards jsonb := coalesce(nullif(current_setting('asyncdlock.guards', true), ''), '{}')::jsonb;
BEGIN
    INSERT INTO asyncdlock_fences AS marks (key, fence) VALUES (lock, token)
        ON CONFLICT (key) DO UPDATE SET fence = token WHERE marks.fence <= token;
    IF NOT FOUND THEN
        SELECT fence INTO latest FROM asyncdlock_fences WHERE key = lock;
        RAISE EXCEPTION 'stale fencing token' USING ERRCODE = 'AF001', DETAIL = latest::text;
    END IF;
    -- For the triggers of this transaction; a savepoint that is rolled back takes it back as well.
    PERFORM set_config('asyncdlock.guards', (guards || jsonb_build_object(lock, token))::text, true);
END $$;

-- The fence with which this transaction may write `target` under `lock`; NULL for the lock: the only one there is.
CREATE OR REPLACE FUNCTION asyncdlock_fence_for(lock text, target text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    guards jsonb := coalesce(nullif(current_setting('asyncdlock.guards', true), ''), '{}')::jsonb;
    locks text[] := array(SELECT jsonb_object_keys(guards));
BEGIN
    IF lock IS NULL AND cardinality(locks) > 1 THEN
        RAISE EXCEPTION 'table % is fenced, and several locks guard this transaction: protect the table with '
            'an expression that names the lock of a row', target USING ERRCODE = 'AF002';
    END IF;
    -- The setting alone is a claim that anybody can make: the mark has to say so too, and is locked from here on. For a
    -- transaction that called the guard both are so already.
    PERFORM FROM asyncdlock_fences AS marks
        WHERE marks.key = coalesce(lock, locks[1]) AND to_jsonb(marks.fence) = guards -> marks.key FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'table % is fenced: call asyncdlock_guard(%, fence) in this transaction', target,
            coalesce(quote_literal(lock), 'key') USING ERRCODE = 'AF002';
    END IF;
    RETURN guards -> coalesce(lock, locks[1]);
END $$;

-- Protects a table against every writer. Its rows carry a column `fence`; a write is let through only in a
-- transaction that has called asyncdlock_guard, and only if no higher fence has written the row. The trigger's
-- argument, if it has one, is an expression over the columns of a row: the lock that it belongs to.
CREATE OR REPLACE FUNCTION asyncdlock_protect() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    lock text;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'table % is fenced: its rows are deleted one by one, after asyncdlock_guard(key, fence)',
            TG_TABLE_NAME USING ERRCODE = 'AF002';
    END IF;
    IF TG_OP <> 'INSERT' THEN
        IF TG_NARGS > 0 THEN
            EXECUTE format('SELECT coalesce((%s)::text, '''') FROM (SELECT ($1).*) AS row', TG_ARGV[0]) INTO lock USING OLD;
        END IF;
        IF OLD.fence > asyncdlock_fence_for(lock, TG_TABLE_NAME) THEN
            RAISE EXCEPTION 'stale fencing token' USING ERRCODE = 'AF001', DETAIL = OLD.fence::text;
        END IF;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    IF TG_NARGS > 0 THEN
        EXECUTE format('SELECT coalesce((%s)::text, '''') FROM (SELECT ($1).*) AS row', TG_ARGV[0]) INTO lock USING NEW;
    END IF;
    NEW.fence := asyncdlock_fence_for(lock, TG_TABLE_NAME);
    RETURN NEW;
END $$;
