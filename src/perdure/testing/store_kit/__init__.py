"""The conformance kit of stores: what every store must do, as checks that a test suite runs.

```
@pytest.mark.parametrize("check", store_kit.CHECKS, ids=store_kit.name_of)
async def test_my_store(check, tmp_path):
    await check(store_kit.Subject(lambda: MyStore(tmp_path)))
```

A check raises AssertionError when the store does not do what the protocols of
`perdure.log.store` promise. Checks that close and open a store again need `persistent`.
"""

from perdure.testing.store_kit.appends import (
    a_cancelled_append_is_whole_or_absent,
    a_held_append_that_others_followed_is_stale,
    a_stale_version_is_refused,
    an_empty_append_checks_version_and_fence,
    an_entry_needs_its_parent_and_an_id_of_its_own,
    append_extends,
    every_byte_comes_back,
    of_racing_appends_one_wins,
    the_same_append_again_is_held,
    the_summary_is_what_was_last_given,
    what_is_missing_of_a_held_append_is_written,
)
from perdure.testing.store_kit.bodies import (
    blobs_come_back_and_go,
    erasing_keeps_hashes,
    redacting_leaves_a_session_to_read,
)
from perdure.testing.store_kit.inbox import (
    a_consuming_append_again_is_held,
    a_message_is_consumed_by_an_append_that_names_it,
    a_stop_forbids_effects_in_the_whole_tree,
    a_stop_forbids_that_its_run_ends_by_itself,
    messages_are_numbered_and_kept,
    roots_are_due_by_time_or_message,
)
from perdure.testing.store_kit.leases import (
    a_child_is_under_its_roots_lease,
    a_fence_is_compared_whole,
    a_lease_keeps_others_out,
    a_released_lease_is_over,
)
from perdure.testing.store_kit.reopening import (
    a_held_append_is_held_by_the_next,
    racers_through_several_objects,
    two_objects_are_one_store,
    what_was_written_is_there,
)
from perdure.testing.store_kit.sessions import (
    a_name_is_unique,
    create_again_is_held,
    create_keeps_header_and_batch,
    create_refuses_a_broken_batch,
    create_refuses_a_taken_id,
    delete_removes_all_of_it,
    delete_respects_a_lease,
    listing_filters_and_pages,
    one_of_many_gets_a_name,
    reading_since_a_version,
    what_is_missing_is_named,
    what_is_read_is_a_copy,
)
from perdure.testing.store_kit.subject import CHECKS, Check, Subject, name_of
from perdure.testing.store_kit.writing import START, chain, header

__all__ = [
    "CHECKS",
    "START",
    "Check",
    "Subject",
    "a_cancelled_append_is_whole_or_absent",
    "a_child_is_under_its_roots_lease",
    "a_consuming_append_again_is_held",
    "a_fence_is_compared_whole",
    "a_held_append_is_held_by_the_next",
    "a_held_append_that_others_followed_is_stale",
    "a_lease_keeps_others_out",
    "a_message_is_consumed_by_an_append_that_names_it",
    "a_name_is_unique",
    "a_released_lease_is_over",
    "a_stale_version_is_refused",
    "a_stop_forbids_effects_in_the_whole_tree",
    "a_stop_forbids_that_its_run_ends_by_itself",
    "an_empty_append_checks_version_and_fence",
    "an_entry_needs_its_parent_and_an_id_of_its_own",
    "append_extends",
    "blobs_come_back_and_go",
    "chain",
    "create_again_is_held",
    "create_keeps_header_and_batch",
    "create_refuses_a_broken_batch",
    "create_refuses_a_taken_id",
    "delete_removes_all_of_it",
    "delete_respects_a_lease",
    "erasing_keeps_hashes",
    "every_byte_comes_back",
    "header",
    "listing_filters_and_pages",
    "messages_are_numbered_and_kept",
    "name_of",
    "of_racing_appends_one_wins",
    "one_of_many_gets_a_name",
    "racers_through_several_objects",
    "reading_since_a_version",
    "redacting_leaves_a_session_to_read",
    "roots_are_due_by_time_or_message",
    "the_same_append_again_is_held",
    "the_summary_is_what_was_last_given",
    "two_objects_are_one_store",
    "what_is_missing_is_named",
    "what_is_missing_of_a_held_append_is_written",
    "what_is_read_is_a_copy",
    "what_was_written_is_there",
]
