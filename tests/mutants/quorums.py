"""Bugs in the backends of several servers: Redlock, etcd, ZooKeeper; and in that of PostgreSQL."""

from tests.mutants.mutant import Mutant

_REDLOCK, _ETCD, _ZOOKEEPER = (f"asyncdlock/backends/{name}/" for name in ("redlock", "etcd", "zookeeper"))
_POSTGRES = "asyncdlock/backends/postgres/"
_OF_REDLOCK = "tests/redlock/"
_OF_BACKENDS = "tests/backends/"

MUTANTS = [
    Mutant(
        "redlock: renewed by one node of five",
        _REDLOCK + "backend.py",
        "        if extended >= self._quorum:",
        "        if extended >= 1:",
        _OF_REDLOCK + "test_unknown.py::test_a_renewal_needs_a_majority",
    ),
    Mutant(
        "redlock: a fence does not name its node",
        _REDLOCK + "backend.py",
        "return counter * FENCE_SCALE + node",
        "return counter * FENCE_SCALE",
        _OF_REDLOCK + "test_fences.py::test_a_fence_names_its_node_whatever_the_order_in_the_url",
    ),
    Mutant(
        "redlock: nodes in the order of the URL",
        _REDLOCK + "url.py",
        "for host, port in sorted(logins)",
        "for host, port in logins",
        _OF_REDLOCK + "test_fences.py::test_a_fence_names_its_node_whatever_the_order_in_the_url",
    ),
    Mutant(
        "redlock: the highest counter is not written back",
        _REDLOCK + "backend.py",
        "        if remember < self._quorum:",
        "        if False:",
        _OF_REDLOCK + "test_fences.py::test_the_highest_counter_is_written_back_before_the_grant_returns",
    ),
    Mutant(
        "redlock: one node less than a majority",
        _REDLOCK + "backend.py",
        "self._quorum = len(members) // 2 + 1",
        "self._quorum = len(members) // 2",
        _OF_REDLOCK + "test_majority.py::test_a_lock_that_another_holds_on_a_majority_is_not_taken",
    ),
    Mutant(
        "redlock: a lease that ran out while it was asked for is granted",
        _REDLOCK + "backend.py",
        "            if time.monotonic() < expires_at:\n",
        "            if True:\n",
        _OF_REDLOCK + "test_majority.py::test_a_lease_that_ran_out_while_it_was_asked_for_is_not_granted",
    ),
    Mutant(
        "redlock: a lost vote is kept",
        _REDLOCK + "backend.py",
        "        await self._ask(UNDO, requests.release(claim), claim.ttl, claim.owner)\n",
        "",
        _OF_REDLOCK + "test_majority.py::test_a_lost_vote_is_given_back_on_the_nodes_that_were_won",
    ),
    Mutant(
        "redlock: a silent node is lost",
        _REDLOCK + "backend.py",
        "        if len(self._members) - len(no) < self._quorum:\n            return False",
        "        if len(yes) < self._quorum:\n            return False",
        _OF_REDLOCK + "test_unknown.py::test_a_node_that_dies_before_the_release_does_not_make_the_lock_lost",
    ),
    Mutant(
        "redlock: a superseded request is repeated",
        _REDLOCK + "backend.py",
        "            earlier.superseded = True\n",
        "            pass\n",
        _OF_REDLOCK + "test_repetition.py::test_a_release_sent_again_does_not_delete_what_the_next_try_won",
    ),
    Mutant(
        "redlock: a forgotten script costs a vote",
        _REDLOCK + "ballot.py",
        "again = first is None and (not error.definite or isinstance(error, ScriptMissing))",
        "again = first is None and not error.definite",
        _OF_REDLOCK + "test_repetition.py::test_a_script_that_a_node_has_forgotten_costs_no_vote",
    ),
    Mutant(
        "redlock: a dead node is dialled for every request",
        _REDLOCK + "member.py",
        "        self._dial_at = time.monotonic() + next(self._pauses)",
        "        self._dial_at = 0.0",
        _OF_REDLOCK + "test_dead_nodes.py::test_a_dead_node_is_not_dialled_for_every_request",
    ),
    Mutant(
        "redlock: own contenders split each other's votes",
        _REDLOCK + "url.py",
        'where.ours.get("local_queue", True)',
        'where.ours.get("local_queue", False)',
        _OF_REDLOCK
        + "test_contenders.py::test_own_contenders_are_served_in_order_and_ask_the_nodes_one_at_a_time",
    ),
    Mutant(
        "etcd: a lease counts from its answer",
        _ETCD + "lease.py",
        "        lease.refreshed_at = lease.asked_at = sent\n",
        "        lease.refreshed_at = lease.asked_at = time.monotonic()\n",
        _OF_BACKENDS + "test_etcd_delays.py::test_a_lease_counts_from_before_it_was_asked_for",
    ),
    Mutant(
        "etcd: a refreshed lease counts from its answer",
        _ETCD + "lease.py",
        "lease.refreshed_at = max(lease.refreshed_at, now)",
        "lease.refreshed_at = max(lease.refreshed_at, time.monotonic())",
        _OF_BACKENDS
        + "test_etcd_delays.py::test_a_lease_that_is_refreshed_counts_from_before_that_was_asked_for",
    ),
    Mutant(
        "etcd: a lease that is confirmed too late is believed",
        _ETCD + "lease.py",
        "            elif left > 0 and not lease.lapsed:",
        "            elif left > 0:",
        _OF_BACKENDS + "test_etcd_delays.py::test_a_lease_that_is_confirmed_too_late_is_not_believed",
    ),
    Mutant(
        "etcd: a renewal does not read the key",
        _ETCD + "queue.py",
        "                owned = value == place.owner\n",
        "                owned = True\n",
        _OF_BACKENDS + "test_etcd_lock.py::test_renewal_notices_a_key_that_somebody_deleted",
    ),
    Mutant(
        "etcd: who waited does not look at its own key",
        _ETCD + "queue.py",
        "            now = await (self._look_at_own if holder_left else self._look)(place, now.revision)\n",
        "            now = Position(now.revision, (), now.read_at)\n",
        _OF_BACKENDS + "test_etcd_loss.py::test_a_waiter_whose_lease_expired_does_not_get_the_lock_by_it",
    ),
    Mutant(
        "etcd: whom a release tells does not look at its own key",
        _ETCD + "queue.py",
        "        there = bool(own) and own[0].create_revision == revision\n",
        "        there = True\n",
        _OF_BACKENDS + "test_etcd_lock.py::test_whom_a_release_tells_has_its_place_still",
    ),
    Mutant(
        "etcd: a request that was cut off is taken for one that was not sent",
        _ETCD + "transport/sender.py",
        "                stream.said = ends\n",
        "                stream.said = False\n",
        _OF_BACKENDS + "test_etcd_http2.py::test_a_connection_that_is_cut_leaves_the_outcome_open",
    ),
    Mutant(
        "etcd: a release deletes without comparing",
        _ETCD + "requests.py",
        "        compare=[rpc.Compare(result=_EQUAL, target=rpc.Compare.VALUE, key=place, value=owner)],\n",
        "",
        _OF_BACKENDS + "test_etcd_lock.py::test_a_release_leaves_a_key_alone_that_another_wrote",
    ),
    Mutant(
        "etcd: the lease of a repeated release is lent again",
        _ETCD + "lock.py",
        "        if failed or leaving.result().uncertain:\n            self._leases.retire(place.lease)\n",
        "",
        _OF_BACKENDS
        + "test_etcd_delays.py::test_a_release_that_arrives_late_takes_nothing_from_a_later_holder",
    ),
    Mutant(
        "etcd: doubt about a claim is not noted",
        _ETCD + "queue.py",
        "            place.doubtful = True\n            self._leases.retire(place.lease)\n",
        "            pass\n",
        _OF_BACKENDS + "test_etcd_delays.py::test_a_claim_that_arrives_long_after_its_owner_left_is_removed",
    ),
    Mutant(
        "etcd: a refusal of the last copy is definite",
        _ETCD + "connection.py",
        "raise refusal(failure, member.endpoint, definite=not uncertain)",
        "raise refusal(failure, member.endpoint, definite=True)",
        _OF_BACKENDS
        + "test_etcd_delays.py::test_a_refusal_is_not_definite_when_an_earlier_copy_may_have_been_carried_out",
    ),
    Mutant(
        "etcd: two claims on one lock share a revision",
        _ETCD + "transactions.py",
        "            if item.joins is not None and item.joins in joined:\n",
        "            if False:\n",
        _OF_BACKENDS + "test_etcd_lock.py::test_claims_on_one_lock_never_share_a_revision",
    ),
    Mutant(
        "etcd: a try that was overtaken holds the lock",
        _ETCD + "queue.py",
        "        if now.ahead:\n            return False\n",
        "",
        _OF_BACKENDS
        + "test_etcd_nested.py::test_a_try_beside_an_acquire_of_the_same_lock_never_makes_two_holders",
    ),
    Mutant(
        "etcd: watches stay behind on another member",
        _ETCD + "stream.py",
        " or self.member.endpoint != self._connection.endpoint:",
        ":",
        _OF_BACKENDS + "test_etcd_streams.py::test_watches_follow_the_requests_to_another_member",
    ),
    Mutant(
        "etcd: a lock that nobody renews lives with its lease",
        _ETCD + "maintenance.py",
        "            else:\n                self._register.give_up(place)\n        return in_use",
        "        return in_use",
        _OF_BACKENDS + "test_etcd_lock.py::test_a_lock_that_nobody_renews_ends_although_its_lease_lives_on",
    ),
    Mutant(
        "etcd: what queues behind requests that nobody answers is sent all the same",
        _ETCD + "transactions.py",
        "            self._fail_queued(queued, error)\n        except",
        "        except",
        _OF_BACKENDS + "test_etcd_cluster.py::test_requests_behind_those_that_nobody_answers_fail_with_them",
    ),
    Mutant(
        "postgres: each place of a dead process costs a lease",
        _POSTGRES + "schema.sql",
        "    IF releaser IS NULL THEN\n",
        "    IF false THEN\n",
        _OF_BACKENDS
        + "test_postgres_faults.py::test_a_process_that_died_with_its_server_costs_the_others_one_lease[0]",
    ),
    Mutant(
        "postgres: a time from before the clock was set back is believed",
        _POSTGRES + "schema.sql",
        "    IF waiter.spoke_at > moment + waiter.patience THEN\n",
        "    IF false THEN\n",
        _OF_BACKENDS
        + "test_postgres_faults.py::test_a_clock_that_was_set_back_keeps_no_frozen_process_alive",
    ),
    Mutant(
        "zookeeper: a node that is gone is first",
        _ZOOKEEPER + "names.py",
        "        if index == len(self._order) or self._order[index] != place:\n            raise NotQueued(node)\n",
        "",
        _OF_BACKENDS + "test_zookeeper_names.py::test_a_node_that_is_gone_is_never_first",
    ),
    Mutant(
        "zookeeper: the queue is ordered by name",
        _ZOOKEEPER + "names.py",
        "sorted((int(match[1]), name) for name",
        "sorted((0 * int(match[1]), name) for name",
        _OF_BACKENDS + "test_zookeeper_names.py::test_the_queue_is_ordered_by_sequence_whatever_the_names",
    ),
    Mutant(
        "zookeeper: a lost reply makes a second node",
        _ZOOKEEPER + "queues.py",
        "        if place.sent:\n            queue = await look(place, wire)",
        "        if False:\n            queue = await look(place, wire)",
        _OF_BACKENDS + "test_zookeeper_faults.py::test_a_lost_reply_finds_its_node_again",
    ),
    Mutant(
        "zookeeper: a lease that nobody renews lives with its session",
        _ZOOKEEPER + "backend.py",
        "        place.granted = True\n        self._arm(place, noted)\n",
        "        place.granted = True\n",
        _OF_BACKENDS
        + "test_zookeeper.py::test_a_lease_that_is_not_renewed_is_given_up_although_the_session_lives",
    ),
    Mutant(
        "zookeeper: a lease counts from the answer",
        _ZOOKEEPER + "backend.py",
        "                    if time.monotonic() < noted + validity(place.claim.ttl):\n",
        "                    noted = time.monotonic()\n                    if True:\n",
        _OF_BACKENDS + "test_zookeeper_faults.py::test_a_lease_counts_from_before_it_was_asked_for",
    ),
    Mutant(
        "zookeeper: a member cut off from its leader renews",
        _ZOOKEEPER + "renewal.py",
        "self._syncs[session] = wire.send(Sync(self._root))",
        "self._syncs[session] = wire.send(GetData(self._root, False))",
        _OF_BACKENDS + "test_zookeeper_faults.py::test_a_member_cut_off_from_its_leader_renews_nothing",
    ),
    Mutant(
        "zookeeper: a deleted node is renewed",
        _ZOOKEEPER + "renewal.py",
        "            if isinstance(error, NoNodeError | SessionExpiredError):",
        "            if isinstance(error, SessionExpiredError):",
        _OF_BACKENDS + "test_zookeeper.py::test_a_node_that_somebody_deleted_is_a_lost_lease",
    ),
    Mutant(
        "zookeeper: a lock given back during a renewal spoils it",
        _ZOOKEEPER + "renewal.py",
        "        if place.session is None:\n            return LeaseState.LOST  # given back in the meantime\n",
        "        assert place.session is not None\n",
        _OF_BACKENDS + "test_zookeeper_sessions.py::test_what_was_given_back_before_the_answer_came_is_lost",
    ),
    Mutant(
        "zookeeper: a session shorter than its TTL",
        _ZOOKEEPER + "sessions.py",
        "if ttl <= step * power * (1 + 1e-9)), 10.0)",
        "if ttl < 2 * step * power), 10.0)",
        _OF_BACKENDS + "test_zookeeper_names.py::test_a_session_never_lasts_less_than_its_ttl",
    ),
]
