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
