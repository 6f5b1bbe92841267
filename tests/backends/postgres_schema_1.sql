-- What postgres:// keeps on its server. Safe to run again, also by several at once.
SELECT pg_advisory_xact_lock(7020102030405060708);

CREATE SCHEMA IF NOT EXISTS @schema@;

-- A lock for each key that was ever taken. The row stays when the lock is free: it holds the counter of fences.
CREATE TABLE IF NOT EXISTS @schema@.locks (
    key         text COLLATE "C" PRIMARY KEY,
    fence       bigint NOT NULL, -- the last that was handed out
    owner       text,            -- NULL: free, and nobody waits
    expires_at  timestamptz,     -- by this server's clock
    released_by text             -- who gave it back last: the answer to a release whose reply was lost
) WITH (fillfactor = 50);        -- room for the next versions of a row beside it

-- Who waits.
CREATE TABLE IF NOT EXISTS @schema@.waiters (
    key         text COLLATE "C",
    place       bigint GENERATED ALWAYS AS IDENTITY,
    owner       text NOT NULL UNIQUE,
    ttl         interval NOT NULL,
    fences      bigint NOT NULL,      -- how many a grant takes
    patience    interval NOT NULL,    -- silent for so long, it is passed over
    spoke_at    timestamptz NOT NULL,
    listener    bigint,               -- the advisory lock that its connection holds for as long as it stands
    channel     text,                 -- where to tell it; NULL: it asks
    PRIMARY KEY (key, place)
);

-- Hands a lock whose row the caller has locked to the first waiter that lives, or frees it.
CREATE OR REPLACE FUNCTION @schema@.pass_on_1(lock text, releaser text, my_listener bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    waiter @schema@.waiters;
    moment timestamptz := clock_timestamp();
    began  timestamptz := pg_postmaster_start_time();
    last   bigint;
BEGIN
    FOR waiter IN SELECT * FROM @schema@.waiters WHERE key = lock ORDER BY place LOOP
        DELETE FROM @schema@.waiters WHERE key = lock AND place = waiter.place;
        -- One who joined before the server was started had its connection cut, and could not speak while the
        -- server recovered, which takes a while.
        CONTINUE WHEN greatest(waiter.spoke_at + waiter.patience,
            CASE WHEN waiter.spoke_at < began THEN began + 10 * waiter.patience END) <= moment;
        -- A lock that can be had is one that nobody holds: the connection is gone. Our own could be had, too.
        CONTINUE WHEN waiter.spoke_at > began AND waiter.listener <> coalesce(my_listener, 0)
            AND pg_try_advisory_xact_lock_shared(waiter.listener);
        UPDATE @schema@.locks
            SET owner = waiter.owner, fence = fence + waiter.fences, expires_at = moment + waiter.ttl,
                released_by = coalesce(releaser, released_by)
            WHERE key = lock AND fence <= 9223372036854775807 - waiter.fences
            RETURNING fence INTO last;
        IF FOUND THEN
            IF waiter.channel IS NOT NULL THEN
                PERFORM pg_notify(waiter.channel, concat_ws(' ', waiter.owner, last, extract(epoch FROM moment)));
            END IF;
            RETURN;
        END IF;
    END LOOP;
    UPDATE @schema@.locks SET owner = NULL, expires_at = NULL, released_by = coalesce(releaser, released_by)
        WHERE key = lock;
END $$;

-- Carries out requests, all of them in one transaction. They are taken in the order of their keys, so that two batches
-- cannot wait for each other, and for one key in the order in which they stand. One row for each request:
--
--   verb                    number          outcome
--   acquire, try            fences to take  granted (last_fence) | waiting or held (remaining) | exhausted
--   renew                                   renewed | lost
--   release, release again                  released | lost | unknown (again: whether it was released before)
--   raise                   the floor       raised
CREATE OR REPLACE FUNCTION @schema@.run_1(
    verbs text[], keys text[], owners text[], ttls float8[], numbers bigint[],
    my_patience float8, my_listener bigint, my_channel text
) RETURNS TABLE (request bigint, outcome text, last_fence bigint, remaining float8, server_time float8)
LANGUAGE plpgsql AS $$
DECLARE
    asked   record;
    lock    @schema@.locks;
    moment  timestamptz;
    valid   boolean;
    queued  boolean;
    durable boolean := false;
BEGIN
    FOR asked IN
        SELECT one.verb, one.key, one.owner, one.ttl * interval '1 s' AS ttl, one.number, one.place
            FROM unnest(verbs, keys, owners, ttls, numbers)
            WITH ORDINALITY AS one (verb, key, owner, ttl, number, place)
            ORDER BY one.key COLLATE "C", one.place
    LOOP
        request := asked.place;
        last_fence := NULL;
        remaining := NULL;
        IF asked.verb IN ('acquire', 'try') THEN
            -- Most often it is free, and one statement does it.
            UPDATE @schema@.locks
                SET owner = asked.owner, fence = fence + asked.number, expires_at = clock_timestamp() + asked.ttl
                WHERE key = asked.key AND owner IS NULL AND fence <= 9223372036854775807 - asked.number
                RETURNING fence INTO last_fence;
            IF NOT FOUND THEN
                INSERT INTO @schema@.locks (key, fence, owner, expires_at)
                    VALUES (asked.key, asked.number, asked.owner, clock_timestamp() + asked.ttl)
                    ON CONFLICT (key) DO NOTHING
                    RETURNING fence INTO last_fence;
            END IF;
            IF FOUND THEN
                outcome := 'granted';
                durable := true;
                server_time := extract(epoch FROM clock_timestamp());
                RETURN NEXT;
                CONTINUE;
            END IF;
        ELSIF asked.verb = 'raise' THEN
            INSERT INTO @schema@.locks AS old (key, fence) VALUES (asked.key, asked.number)
                ON CONFLICT (key) DO UPDATE SET fence = greatest(old.fence, asked.number);
            outcome := 'raised';
            durable := true;
            server_time := extract(epoch FROM clock_timestamp());
            RETURN NEXT;
            CONTINUE;
        END IF;

        SELECT * INTO lock FROM @schema@.locks WHERE key = asked.key FOR UPDATE;
        moment := clock_timestamp();
        valid := coalesce(lock.owner = asked.owner AND lock.expires_at > moment, false);
        IF asked.verb = 'renew' THEN
            outcome := CASE WHEN valid THEN 'renewed' ELSE 'lost' END;
            IF valid THEN
                durable := true;
                UPDATE @schema@.locks SET expires_at = moment + asked.ttl WHERE key = asked.key;
            END IF;
        ELSIF asked.verb LIKE 'release%' THEN
            outcome := CASE
                WHEN valid OR (asked.verb = 'release again' AND lock.released_by = asked.owner) THEN 'released'
                WHEN asked.verb = 'release again' THEN 'unknown'
                ELSE 'lost' END;
            IF lock.owner = asked.owner THEN
                PERFORM @schema@.pass_on_1(asked.key, CASE WHEN valid THEN asked.owner END, my_listener);
                durable := durable OR EXISTS (
                    SELECT FROM @schema@.locks WHERE key = asked.key AND owner IS NOT NULL);
            ELSE
                DELETE FROM @schema@.waiters WHERE key = asked.key AND owner = asked.owner;
            END IF;
        ELSE
            UPDATE @schema@.waiters
                SET spoke_at = moment, listener = my_listener, channel = my_channel
                WHERE key = asked.key AND owner = asked.owner;
            queued := FOUND;
            IF lock.expires_at <= moment THEN
                -- It ended without a word: those who wait come first.
                PERFORM @schema@.pass_on_1(asked.key, NULL, my_listener);
                durable := true;
                SELECT * INTO lock FROM @schema@.locks WHERE key = asked.key;
            END IF;
            IF lock.owner IS NULL AND lock.fence <= 9223372036854775807 - asked.number THEN
                lock.owner := asked.owner;
                lock.fence := lock.fence + asked.number;
            END IF;
            IF lock.owner = asked.owner THEN
                -- Also if it was granted before and nobody heard of it: the lease begins anew, nobody had it since.
                outcome := 'granted';
                last_fence := lock.fence;
                durable := true;
                UPDATE @schema@.locks
                    SET owner = lock.owner, fence = lock.fence, expires_at = moment + asked.ttl
                    WHERE key = asked.key;
            ELSIF lock.owner IS NULL THEN
                outcome := 'exhausted';
            ELSE
                outcome := CASE asked.verb WHEN 'try' THEN 'held' ELSE 'waiting' END;
                remaining := extract(epoch FROM lock.expires_at - moment);
                IF asked.verb = 'acquire' AND NOT queued THEN
                    INSERT INTO @schema@.waiters (key, owner, ttl, fences, patience, spoke_at, listener, channel)
                        VALUES (asked.key, asked.owner, asked.ttl, asked.number,
                                my_patience * interval '1 s', moment, my_listener, my_channel);
                    durable := true; -- its place is
                END IF;
            END IF;
        END IF;
        server_time := extract(epoch FROM moment);
        RETURN NEXT;
    END LOOP;
    -- What was promised must outlive a crash, whatever the server's default is. What was not may be lost: a release
    -- that is forgotten costs the rest of a lease.
    IF NOT durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;
