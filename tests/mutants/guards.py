"""Bugs where the write happens: the resource, its stores, the guards."""

from tests.mutants.mutant import Mutant

_RESOURCE = "harness/resource/"
_FENCING = "asyncdlock/fencing/"
_OF_RESOURCE = "tests/resource/"
_OF_FENCING = "tests/fencing/"

MUTANTS = [
    Mutant(
        "decision: an equal write is accepted again",
        _RESOURCE + "decision.py",
        "return Mark(token, seq) if (token, seq) > mark else None",
        "return Mark(token, seq) if (token, seq) >= mark else None",
        _OF_RESOURCE + "test_decision.py::test_one_holder_orders_its_writes_by_sequence_number",
    ),
    Mutant(
        "decision: a read lowers its holder's mark",
        _RESOURCE + "decision.py",
        "return max(mark, Mark(token, READ)) if token >= mark.token else None",
        "return Mark(token, READ) if token >= mark.token else None",
        _OF_RESOURCE + "test_decision.py::test_a_read_never_lowers_the_mark_of_its_own_holders_writes",
    ),
    Mutant(
        "decision: a stale read is answered",
        _RESOURCE + "decision.py",
        "return max(mark, Mark(token, READ)) if token >= mark.token else None",
        "return max(mark, Mark(token, READ))",
        _OF_RESOURCE + "test_decision.py::test_a_read_shuts_older_holders_out_and_its_own_holder_not",
    ),
    Mutant(
        "decision: a repetition is not recognised behind another's write",
        _RESOURCE + "decision.py",
        "    return any(state.recent[i : i + size] == wanted for i in range(0, len(state.recent), size))",
        "    return False and (wanted, size)",
        _OF_RESOURCE
        + "test_decision.py::test_what_was_accepted_is_recognised_as_repeated_and_nothing_else_is",
    ),
    Mutant(
        "decision: the version is not compared",
        _RESOURCE + "decision.py",
        "if write.expected is not None and write.expected != state.version:",
        "if False:",
        _OF_RESOURCE + "test_modes.py::test_check_and_set_lets_one_of_two_writers_of_a_version_win[memory]",
    ),
    Mutant(
        "memory: a fenced read raises nothing",
        _RESOURCE + "memory.py",
        "            self._keys[key] = state, body\n",
        "",
        _OF_RESOURCE + "test_contract.py::test_a_fenced_read_prevents_the_lost_update[memory]",
    ),
    Mutant(
        "sqlite: the answer before the commit",
        _RESOURCE + "sqlite.py",
        "            else:\n                self._writer.commit()\n",
        "",
        _OF_RESOURCE + "test_durability.py::test_a_restart_with_another_mode_keeps_the_marks",
    ),
    Mutant(
        "sqlite: a fenced read raises nothing",
        _RESOURCE + "sqlite.py",
        "            self._writer.execute(sql.RAISE, (read.key, *mark))\n",
        "            pass\n",
        _OF_RESOURCE + "test_contract.py::test_a_fenced_read_prevents_the_lost_update[sqlite]",
    ),
    Mutant(
        "sqlite: a file that is gone goes unnoticed",
        _RESOURCE + "sqlite.py",
        "            self._watch.check()\n",
        "",
        _OF_RESOURCE
        + "test_sqlite_file.py::test_a_file_that_is_gone_is_noticed_before_anything_more_is_promised",
    ),
    Mutant(
        "sqlite: a locked file stops the event loop",
        _RESOURCE + "sqlite.py",
        "                await asyncio.sleep(_LOCK_RETRY)\n",
        "                import time; time.sleep(_LOCK_RETRY)\n",
        _OF_RESOURCE + "test_sqlite_file.py::test_a_foreign_lock_delays_writes_and_nothing_else",
    ),
    Mutant(
        "sqlite: the log grows without limit",
        _RESOURCE + "sqlite.py",
        "                self._drop_old_rows()\n",
        "                pass\n",
        _OF_RESOURCE + "test_retention.py::test_refused_writes_do_not_grow_the_log_without_limit[sqlite]",
    ),
    Mutant(
        "postgres: a stale write is accepted",
        _RESOURCE + "postgres_sql.py",
        "WHERE (NOT $7::boolean OR (excluded.token, excluded.seq) > (r.mark_token, r.mark_seq))",
        "WHERE (NOT $7::boolean OR (excluded.token, excluded.seq) <> (r.mark_token, r.mark_seq))",
        _OF_RESOURCE + "test_contract.py::test_a_stale_write_gets_exactly_the_409_of_the_contract[postgres]",
    ),
    Mutant(
        "postgres: a stale read is answered",
        _RESOURCE + "postgres_sql.py",
        "WHERE excluded.mark_token >= r.mark_token\n",
        "",
        _OF_RESOURCE
        + "test_contract.py::test_a_fenced_read_is_refused_below_the_highest_token_seen[postgres]",
    ),
    Mutant(
        "http guard: any 200 is believed",
        _FENCING + "_resource.py",
        '    if status == 200 and isinstance(answer.get("version"), int):\n',
        "    if status == 200:\n",
        _OF_RESOURCE + "test_guard.py::test_only_the_answer_of_a_fenced_resource_is_believed",
    ),
    Mutant(
        "http guard: a fenced read does not check the mark",
        _FENCING + "_resource.py",
        "    if fence is not None and max_fence < fence:\n",
        "    if False:\n",
        _OF_RESOURCE
        + "test_guard.py::test_a_fenced_read_of_a_resource_that_does_not_fence_reads_is_an_error",
    ),
    Mutant(
        "http guard: a body is sent twice",
        _FENCING + "http.py",
        "        self._sent = True\n",
        "        pass\n",
        _OF_RESOURCE + "test_guard.py::test_no_body_is_sent_again_unless_it_is_said_to_be_a_repetition",
    ),
    Mutant(
        "postgres guard: a stale fence is let in",
        _FENCING + "postgres.sql",
        " WHERE marks.fence <= token;",
        ";",
        _OF_FENCING + "test_postgres.py::test_a_fresh_writer_wins_and_a_stale_one_loses[asyncpg]",
    ),
    Mutant(
        "postgres guard: without a transaction under SQLAlchemy",
        _FENCING + "postgres.py",
        "    if not await driver.in_transaction():  # one that was to begin with that statement has ended with it",
        "    if False:",
        _OF_FENCING + "test_postgres.py::test_sqlalchemy_without_transactions_is_refused[psycopg]",
    ),
    Mutant(
        "postgres row: written whatever its fence",
        _FENCING + "postgres.py",
        "({mark} IS NULL OR {mark} < {{}}) RETURNING",
        "({mark} IS NULL OR {mark} < {{}} OR true) RETURNING",
        _OF_FENCING + "test_postgres.py::TestRow::test_it_is_written_once_for_each_fence_upwards[psycopg]",
    ),
    Mutant(
        "postgres table: a row of a higher fence is written",
        _FENCING + "postgres.sql",
        "IF OLD.fence > asyncdlock_fence_for(lock, TG_TABLE_NAME) THEN",
        "IF asyncdlock_fence_for(lock, TG_TABLE_NAME) IS NULL THEN",
        _OF_FENCING + "test_postgres.py::TestProtectedTable"
        "::test_a_row_of_a_higher_fence_is_out_of_reach_for_other_locks_too[asyncpg]",
    ),
    Mutant(
        "postgres table: any lock will do",
        _FENCING + "postgres.sql",
        "    IF lock IS NULL AND cardinality(locks) > 1 THEN",
        "    IF false THEN",
        _OF_FENCING + "test_postgres.py::TestProtectedTable"
        "::test_two_locks_in_one_transaction_are_told_apart_or_refused[asyncpg]",
    ),
    Mutant(
        "s3 guard: a stale fence is written",
        _FENCING + "s3.py",
        "    if found.fence > fence:",
        "    if False:",
        _OF_FENCING + "test_s3.py::test_a_fresh_writer_wins_and_a_stale_one_loses",
    ),
    Mutant(
        "s3 guard: no condition",
        _FENCING + "_objects.py",
        '{"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}',
        "{}",
        _OF_FENCING + "test_s3.py::test_writers_at_once_never_let_the_object_run_backwards",
    ),
    Mutant(
        "s3 guard: a store that ignores If-Match is taken",
        _FENCING + "s3.py",
        '            raise UnfitStore("the store ignores If-Match: a stale writer could overwrite a newer one")',
        "            pass",
        _OF_FENCING
        + "test_s3.py::test_a_store_that_ignores_conditions_is_refused_before_anything_is_stored[If-Match]",
    ),
    Mutant(
        "etcd guard: the mark is not compared",
        _FENCING + "etcd.py",
        "compare=[make.value(mark) < _digits(fence + 1), *compare],",
        "compare=[make.version(mark) > 0, *compare],",
        _OF_FENCING + "test_etcd.py::test_a_fresh_writer_wins_and_a_stale_one_loses",
    ),
    Mutant(
        "endpoints: an error is committed",
        _FENCING + "asgi.py",
        "                    raise Unsuccessful",
        "                    pass",
        _OF_FENCING
        + "test_endpoints.py::test_what_the_endpoint_wrote_stays_if_it_says_so[asgi-500-rolled back]",
    ),
    Mutant(
        "endpoints: unknown methods pass",
        _FENCING + "_header.py",
        '{"GET", "HEAD", "OPTIONS", "TRACE"}',
        '{"GET", "HEAD", "OPTIONS", "TRACE", "MOVE"}',
        _OF_FENCING + "test_endpoints.py::test_whatever_is_not_known_to_be_a_read_is_a_write[aiohttp]",
    ),
    Mutant(
        "signed fences: any signature will do",
        _FENCING + "signed.py",
        "        if not hmac.compare_digest(",
        "        if False and not hmac.compare_digest(",
        _OF_FENCING + "test_signed.py::test_the_same_name_with_another_secret_is_not_believed",
    ),
    Mutant(
        "redis guard: a stale fence is written",
        _FENCING + "fenced.lua",
        "local stale = less(fence, seen)",
        "local stale = false",
        _OF_FENCING + "test_redis.py::test_a_fresh_writer_wins_and_a_stale_one_loses",
    ),
    Mutant(
        "redis guard: fences compare as text",
        _FENCING + "fenced.lua",
        "  if #a ~= #b then return #a < #b end\n",
        "",
        _OF_FENCING + "test_redis.py::test_fences_compare_as_numbers_beyond_two_to_the_53",
    ),
    Mutant(
        "redis guard: a fenced read raises nothing",
        _FENCING + "fenced.lua",
        "      redis.call('HSET', key, 'seen', fence)\n",
        "",
        _OF_FENCING + "test_redis.py::test_a_fenced_read_shuts_older_writers_out",
    ),
    Mutant(
        "redis guard: writes before the last are not remembered",
        _FENCING + "fenced.lua",
        "    if is_remembered(key, wanted) then return {'again'} end\n",
        "",
        _OF_FENCING + "test_redis.py::test_a_write_that_the_client_repeats_is_not_called_stale",
    ),
    Mutant(
        "redis guard: what is forgotten was never stored",
        _FENCING + "redis.py",
        "                if 0 <= forgotten_for <= (time.monotonic() - called) * 1000 + 1:\n",
        "                if False:\n",
        _OF_FENCING + "test_redis.py::test_what_cannot_be_known_of_a_repeated_write_is_said_to_be_unknown",
    ),
    Mutant(
        "s3 guard: writes before the last are not remembered",
        _FENCING + "s3.py",
        "if found.write == mine or mine.remembered in found.past:",
        "if found.write == mine:",
        _OF_FENCING + "test_s3.py::test_a_write_that_the_client_repeats_is_not_called_stale[1]",
    ),
    Mutant(
        "s3 guard: what is forgotten was never stored",
        _FENCING + "s3.py",
        "            if refused and found.write.fence > fence and",
        "            if False and",
        _OF_FENCING + "test_s3.py::test_a_write_that_the_client_repeats_is_not_called_stale[20]",
    ),
    Mutant(
        "service guard: two requests of a key at once",
        _FENCING + "marks.py",
        "            async with turn.lock:\n",
        "            if True:\n",
        _OF_FENCING + "test_endpoints.py::test_a_newer_holder_waits_for_the_one_that_is_inside",
    ),
    Mutant(
        "service guard: a stale fence is admitted",
        _FENCING + "marks.py",
        "                if fence < seen:\n",
        "                if False:\n",
        _OF_FENCING + "test_endpoints.py::test_a_stale_write_never_reaches_the_endpoint",
    ),
    Mutant(
        "signed fences: not bound to their key",
        _FENCING + "signed.py",
        'octets = key.encode("utf-8", "surrogatepass")',
        'octets = b"key"',
        _OF_FENCING + "test_signed.py::test_for_no_other_key_and_no_other_fence",
    ),
]
