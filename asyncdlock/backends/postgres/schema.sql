-- What postgres:// keeps on its server. Safe to run again, also by several at once.
SELECT pg_advisory_xact_lock(7020102030405060708);

CREATE SCHEMA IF NOT EXISTS @schema@;

-- Tables of an earlier version are changed below: not behind a transaction that never ends, with everybody else behind us.
SELECT set_config('lock_timeout', '3s', true);

-- A lock for each key that was ever taken. The row stays when the lock is free: it holds the counter of fences.
CREATE TABLE IF NOT EXISTS @schema@.locks (
    key         text COLLATE "C" PRIMARY KEY,
    fence       bigint NOT NULL, -- the last that was handed out
    owner       text,            -- NULL: free, and nobody waits; 'asyncdlock:shared': see holders
    expires_at  timestamptz,     -- by this server's clock
    released_by text             -- who gave it back last: the answer to a release whose reply was lost
) WITH (fillfactor = 50);        -- room for the next versions of a row beside it
-- To be seen from outside. What a lock was granted with before there were these columns is not known.
ALTER TABLE @schema@.locks
    ADD COLUMN IF NOT EXISTS label       text,
    ADD COLUMN IF NOT EXISTS first_fence bigint, -- of the grant, or of the first of those who hold it beside each other
    ADD COLUMN IF NOT EXISTS granted_at  timestamptz;

-- Who holds a lock beside others: readers, or the holders of a semaphore's permits. Its lease ends with the last of theirs.
CREATE TABLE IF NOT EXISTS @schema@.holders (
    key         text COLLATE "C",
    owner       text,
    label       text,
    fence       bigint NOT NULL,
    granted_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (key, owner)
) WITH (fillfactor = 50);

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
ALTER TABLE @schema@.waiters
    ADD COLUMN IF NOT EXISTS label   text,
    ADD COLUMN IF NOT EXISTS permits bigint; -- as one of so many at once, 0: of any number; NULL: alone

-- Whether a waiter would hear of a grant.
CREATE OR REPLACE FUNCTION @schema@.lives_2(waiter @schema@.waiters, moment timestamptz, my_listener bigint)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := pg_postmaster_start_time();
BEGIN
    -- Said before the server's clock was set back: it is not believed until it speaks again.
    IF waiter.spoke_at > moment + waiter.patience THEN
        RETURN false;
    END IF;
    -- One who joined before the server was started had its connection cut, and could not speak while the
    -- server recovered, which takes a while.
    IF greatest(waiter.spoke_at + waiter.patience,
            CASE WHEN waiter.spoke_at < began THEN began + 10 * waiter.patience END) <= moment THEN
        RETURN false;
    END IF;
    -- A lock that can be had is one that nobody holds: the connection is gone. Our own could be had, too.
    IF waiter.spoke_at > began AND waiter.listener <> coalesce(my_listener, 0)
            AND pg_try_advisory_xact_lock_shared(waiter.listener) THEN
        RETURN false;
    END IF;
    RETURN true;
END $$;

-- Gives a lock whose row the caller has locked, and that can be had, to a claimant. Returns the last fence of the
-- grant; NULL: they are used up.
CREATE OR REPLACE FUNCTION @schema@.grant_2(
    lock text, claimant text, its_label text, its_ttl interval, its_fences bigint, its_permits bigint,
    moment timestamptz, releaser text
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    beside boolean := its_permits IS NOT NULL;
    joins  boolean := beside AND EXISTS (SELECT FROM @schema@.holders WHERE key = lock);
    last   bigint;
BEGIN
    UPDATE @schema@.locks
        SET owner = CASE WHEN beside THEN 'asyncdlock:shared' ELSE claimant END,
            label = its_label,
            first_fence = CASE WHEN joins THEN first_fence ELSE fence + 1 END,
            fence = fence + its_fences,
            granted_at = moment,
            expires_at = greatest(moment + its_ttl, CASE WHEN joins THEN expires_at END),
            released_by = coalesce(releaser, released_by)
        WHERE key = lock AND fence <= 9223372036854775807 - its_fences
        RETURNING fence INTO last;
    IF FOUND AND beside THEN
        INSERT INTO @schema@.holders (key, owner, label, fence, granted_at, expires_at)
            VALUES (lock, claimant, its_label, last, moment, moment + its_ttl);
    END IF;
    RETURN last;
END $$;

-- Lets in the waiters in front for as long as there is room for them; frees the lock if nobody holds it then. The caller
-- has locked its row, and no one holder's lease is left: nobody's, or those of `holders`. Returns whether it was granted.
CREATE OR REPLACE FUNCTION @schema@.serve_2(lock text, releaser text, my_listener bigint, beside boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    waiter  @schema@.waiters;
    moment  timestamptz := clock_timestamp();
    sharers bigint := 0;
    served  boolean := false;
    ends    timestamptz;
    last    bigint;
BEGIN
    IF releaser IS NULL THEN
        -- Leases that ended without a word. One that began while its process was given time to come back after a start of
        -- the server was in vain, and so would be those of its other places. (Owners begin with the session: 23 characters.)
        DELETE FROM @schema@.waiters AS waiting USING (
                SELECT owner, granted_at FROM @schema@.locks WHERE key = lock AND expires_at <= moment
                UNION ALL SELECT owner, granted_at FROM @schema@.holders WHERE key = lock AND expires_at <= moment) AS silent
            WHERE waiting.key = lock AND left(waiting.owner, 23) = left(silent.owner, 23)
                AND waiting.spoke_at < least(silent.granted_at, pg_postmaster_start_time());
    END IF;
    IF beside THEN
        DELETE FROM @schema@.holders WHERE key = lock AND expires_at <= moment;
        SELECT count(*) INTO sharers FROM @schema@.holders WHERE key = lock;
    END IF;
    FOR waiter IN SELECT * FROM @schema@.waiters WHERE key = lock ORDER BY place LOOP
        -- One in front who cannot go in and is not alive must not keep out those behind it.
        IF @schema@.lives_2(waiter, moment, my_listener) THEN
            EXIT WHEN sharers > 0 AND NOT coalesce(waiter.permits = 0 OR sharers < waiter.permits, false);
            last := @schema@.grant_2(
                lock, waiter.owner, waiter.label, waiter.ttl, waiter.fences, waiter.permits, moment, releaser);
            IF last IS NOT NULL AND waiter.channel IS NOT NULL THEN
                PERFORM pg_notify(waiter.channel, concat_ws(' ', waiter.owner, last, extract(epoch FROM moment)));
            END IF;
        ELSE
            last := NULL;
        END IF;
        DELETE FROM @schema@.waiters WHERE key = lock AND place = waiter.place;
        IF last IS NOT NULL THEN
            served := true;
            IF waiter.permits IS NULL THEN
                RETURN true;
            END IF;
            sharers := sharers + 1;
        END IF;
    END LOOP;
    IF sharers > 0 THEN
        SELECT max(expires_at) INTO ends FROM @schema@.holders WHERE key = lock;
    END IF;
    UPDATE @schema@.locks
        SET owner = CASE WHEN sharers > 0 THEN 'asyncdlock:shared' END,
            expires_at = ends,
            released_by = coalesce(releaser, released_by)
        WHERE key = lock AND (releaser IS NOT NULL OR NOT beside OR expires_at IS DISTINCT FROM ends);
    RETURN served;
END $$;

-- What there is to see of one lock: {holders: [[owner, label, since, lease left, fence], ...], waiters: [[owner, label],
-- ...], last_fence, grant: a name for what its holders have now, which no other grant has}.
CREATE OR REPLACE FUNCTION @schema@.inspect_2(name text, moment timestamptz, my_listener bigint) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT jsonb_build_object(
        'holders', CASE
            WHEN lock.owner = 'asyncdlock:shared' THEN (
                SELECT jsonb_agg(jsonb_build_array(
                        owner, label, extract(epoch FROM granted_at), extract(epoch FROM expires_at - moment), fence
                    ) ORDER BY fence)
                FROM @schema@.holders WHERE key = name AND expires_at > moment)
            WHEN lock.expires_at > moment THEN jsonb_build_array(jsonb_build_array(
                lock.owner, lock.label, extract(epoch FROM lock.granted_at),
                extract(epoch FROM lock.expires_at - moment), lock.first_fence))
            END,
        'waiters', (
            SELECT jsonb_agg(jsonb_build_array(waiter.owner, waiter.label) ORDER BY waiter.place)
            FROM @schema@.waiters AS waiter WHERE key = name AND @schema@.lives_2(waiter, moment, my_listener)),
        'last_fence', lock.fence,
        'grant', concat_ws(' ', lock.owner, lock.first_fence))
    FROM @schema@.locks AS lock WHERE key = name
$$;

-- Carries out requests, all of them in one transaction. They are taken in the order of their keys, so that two batches
-- cannot wait for each other, and for one key in the order in which they stand. One row for each request:
--
--   verb                    number          outcome
--   acquire, try            fences to take  granted (last_fence) | waiting or held (remaining) | exhausted
--   renew                                   renewed | lost
--   release, release again                  released | lost | unknown (again: whether it was released before)
--   raise                   the floor       raised
--   force, force again      the floor       released | lost; its owner is the `grant` that inspect named
--   inspect                                 seen (details: what inspect_2 returns, or NULL)
--   list                    how many        seen (details: keys after `owner` that begin with `key`, in order)
--
-- `limits` are the permits of those who ask to hold a lock beside others, see waiters.permits.
CREATE OR REPLACE FUNCTION @schema@.run_2(
    verbs text[], keys text[], owners text[], labels text[], ttls float8[], numbers bigint[], limits bigint[],
    my_patience float8, my_listener bigint, my_channel text
) RETURNS TABLE (
    request bigint, outcome text, last_fence bigint, remaining float8, server_time float8, details jsonb
)
LANGUAGE plpgsql AS $$
DECLARE
    asked   record;
    lock    @schema@.locks;
    moment  timestamptz;
    beside  boolean;
    mine    boolean;
    valid   boolean;
    queued  boolean;
    durable boolean := false;
BEGIN
    FOR asked IN
        SELECT one.verb, one.key, one.owner, one.label, one.ttl * interval '1 s' AS ttl, one.number, one.permits, one.place
            FROM unnest(verbs, keys, owners, labels, ttls, numbers, limits)
            WITH ORDINALITY AS one (verb, key, owner, label, ttl, number, permits, place)
            ORDER BY one.key COLLATE "C", one.place
    LOOP
        request := asked.place;
        last_fence := NULL;
        remaining := NULL;
        details := NULL;
        IF asked.verb IN ('acquire', 'try') THEN
            IF asked.permits IS NULL THEN
                -- Most often it is free, and one statement does it.
                UPDATE @schema@.locks
                    SET owner = asked.owner, label = asked.label, first_fence = fence + 1, fence = fence + asked.number,
                        granted_at = clock_timestamp(), expires_at = clock_timestamp() + asked.ttl
                    WHERE key = asked.key AND owner IS NULL AND fence <= 9223372036854775807 - asked.number
                    RETURNING fence INTO last_fence;
                IF NOT FOUND THEN
                    INSERT INTO @schema@.locks (key, fence, owner, label, first_fence, granted_at, expires_at)
                        VALUES (asked.key, asked.number, asked.owner, asked.label, 1,
                                clock_timestamp(), clock_timestamp() + asked.ttl)
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
            ELSE
                INSERT INTO @schema@.locks (key, fence) VALUES (asked.key, 0) ON CONFLICT (key) DO NOTHING;
            END IF;
        ELSIF asked.verb = 'raise' THEN
            INSERT INTO @schema@.locks AS old (key, fence) VALUES (asked.key, asked.number)
                ON CONFLICT (key) DO UPDATE SET fence = greatest(old.fence, asked.number);
            outcome := 'raised';
            durable := true;
            server_time := extract(epoch FROM clock_timestamp());
            RETURN NEXT;
            CONTINUE;
        ELSIF asked.verb IN ('inspect', 'list') THEN
            moment := clock_timestamp();
            IF asked.verb = 'inspect' THEN
                details := @schema@.inspect_2(asked.key, moment, my_listener);
            ELSE
                SELECT jsonb_agg(page.key) INTO details FROM (
                    SELECT one.key FROM @schema@.locks AS one
                        WHERE one.key > asked.owner AND starts_with(one.key, asked.key) AND (one.expires_at > moment
                            OR EXISTS (SELECT FROM @schema@.waiters AS waiter WHERE waiter.key = one.key
                                AND @schema@.lives_2(waiter, moment, my_listener)))
                        ORDER BY one.key LIMIT asked.number) AS page;
            END IF;
            outcome := 'seen';
            server_time := extract(epoch FROM moment);
            RETURN NEXT;
            CONTINUE;
        END IF;

        SELECT * INTO lock FROM @schema@.locks WHERE key = asked.key FOR UPDATE;
        moment := clock_timestamp();
        beside := coalesce(lock.owner = 'asyncdlock:shared', false);
        IF beside THEN
            SELECT expires_at > moment INTO valid FROM @schema@.holders WHERE key = asked.key AND owner = asked.owner;
            mine := FOUND;
        ELSE
            mine := coalesce(lock.owner = asked.owner, false);
            valid := mine AND lock.expires_at > moment;
        END IF;
        valid := coalesce(valid, false);
        IF asked.verb = 'renew' THEN
            outcome := CASE WHEN valid THEN 'renewed' ELSE 'lost' END;
            IF valid THEN
                durable := true;
                IF beside THEN
                    UPDATE @schema@.holders SET expires_at = moment + asked.ttl
                        WHERE key = asked.key AND owner = asked.owner;
                END IF;
                UPDATE @schema@.locks
                    SET expires_at = greatest(moment + asked.ttl, CASE WHEN beside THEN expires_at END)
                    WHERE key = asked.key;
            END IF;
        ELSIF asked.verb LIKE 'release%' THEN
            outcome := CASE
                WHEN valid OR (asked.verb = 'release again' AND lock.released_by = asked.owner) THEN 'released'
                WHEN asked.verb = 'release again' THEN 'unknown'
                ELSE 'lost' END;
            IF mine AND beside THEN
                DELETE FROM @schema@.holders WHERE key = asked.key AND owner = asked.owner;
            ELSIF NOT mine THEN
                DELETE FROM @schema@.waiters WHERE key = asked.key AND owner = asked.owner;
                mine := FOUND AND beside; -- those behind it may go in beside the holders
            END IF;
            IF mine THEN
                durable := @schema@.serve_2(
                    asked.key, CASE WHEN valid THEN asked.owner END, my_listener, beside) OR durable;
            END IF;
        ELSIF asked.verb LIKE 'force%' THEN
            INSERT INTO @schema@.locks AS old (key, fence)
                VALUES (asked.key, least(asked.number, 9223372036854775806) + 1)
                ON CONFLICT (key) DO UPDATE
                    SET fence = least(greatest(old.fence, asked.number), 9223372036854775806) + 1;
            durable := true;
            mine := coalesce(lock.expires_at > moment AND concat_ws(' ', lock.owner, lock.first_fence) = asked.owner, false);
            IF mine THEN
                DELETE FROM @schema@.holders WHERE key = asked.key;
                PERFORM @schema@.serve_2(asked.key, NULL, my_listener, false);
            END IF;
            outcome := CASE WHEN mine OR asked.verb = 'force again' THEN 'released' ELSE 'lost' END;
        ELSE
            UPDATE @schema@.waiters
                SET spoke_at = moment, listener = my_listener, channel = my_channel
                WHERE key = asked.key AND owner = asked.owner;
            queued := FOUND;
            IF beside OR lock.expires_at <= moment THEN
                -- A lease that ended without a word: those who wait come first.
                durable := @schema@.serve_2(asked.key, NULL, my_listener, beside) OR durable;
                SELECT * INTO lock FROM @schema@.locks WHERE key = asked.key;
                beside := coalesce(lock.owner = 'asyncdlock:shared', false);
            END IF;
            IF beside THEN
                UPDATE @schema@.holders SET expires_at = moment + asked.ttl
                    WHERE key = asked.key AND owner = asked.owner
                    RETURNING fence INTO last_fence;
            ELSIF lock.owner = asked.owner THEN
                -- Not the counter's: it may have been raised since. (Only very old rows do not tell.)
                last_fence := coalesce(lock.first_fence + asked.number - 1, lock.fence);
            END IF;
            IF last_fence IS NOT NULL THEN
                -- It was granted before and nobody heard of it: the lease begins anew, nobody had it since.
                UPDATE @schema@.locks
                    SET expires_at = greatest(moment + asked.ttl, CASE WHEN beside THEN expires_at END)
                    WHERE key = asked.key;
            ELSIF lock.owner IS NULL OR (beside
                    AND (asked.permits = 0 OR asked.permits > (SELECT count(*) FROM @schema@.holders WHERE key = asked.key))
                    AND NOT EXISTS (SELECT FROM @schema@.waiters WHERE key = asked.key)) THEN
                last_fence := @schema@.grant_2(
                    asked.key, asked.owner, asked.label, asked.ttl, asked.number, asked.permits, moment, NULL);
            END IF;
            IF last_fence IS NOT NULL THEN
                outcome := 'granted';
                durable := true;
            ELSIF lock.owner IS NULL THEN
                outcome := 'exhausted';
            ELSE
                outcome := CASE asked.verb WHEN 'try' THEN 'held' ELSE 'waiting' END;
                IF beside THEN
                    SELECT min(expires_at) INTO lock.expires_at FROM @schema@.holders WHERE key = asked.key;
                END IF;
                remaining := extract(epoch FROM lock.expires_at - moment);
                IF asked.verb = 'acquire' AND NOT queued THEN
                    INSERT INTO @schema@.waiters
                            (key, owner, label, ttl, fences, permits, patience, spoke_at, listener, channel)
                        VALUES (asked.key, asked.owner, asked.label, asked.ttl, asked.number, asked.permits,
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

-- For clients of the version before, which shares these tables while a fleet is being updated.
CREATE OR REPLACE FUNCTION @schema@.run_1(
    verbs text[], keys text[], owners text[], ttls float8[], numbers bigint[],
    my_patience float8, my_listener bigint, my_channel text
) RETURNS TABLE (request bigint, outcome text, last_fence bigint, remaining float8, server_time float8)
LANGUAGE sql AS $$
    SELECT request, outcome, last_fence, remaining, server_time
        FROM @schema@.run_2(verbs, keys, owners, NULL, ttls, numbers, NULL, my_patience, my_listener, my_channel)
$$;
CREATE OR REPLACE FUNCTION @schema@.pass_on_1(lock text, releaser text, my_listener bigint) RETURNS void
LANGUAGE sql AS $$
    SELECT @schema@.serve_2(lock, releaser, my_listener, true)
$$;
