//! One suite of behaviours for every home of the `Store` port, and what is special about each home.

#[path = "store_suite/approvals.rs"]
mod approvals;
#[path = "store_suite/callbacks.rs"]
mod callbacks;
#[path = "store_suite/deliveries.rs"]
mod deliveries;
#[path = "store_suite/endpoints.rs"]
mod endpoints;
#[path = "store_suite/fixtures.rs"]
mod fixtures;
#[path = "store_suite/mutations.rs"]
mod mutations;
#[path = "store_suite/operations.rs"]
mod operations;
#[path = "store_suite/organizations.rs"]
mod organizations;
#[path = "store_suite/reservations.rs"]
mod reservations;
#[path = "store_suite/runs.rs"]
mod runs;
#[path = "store_suite/sqlite_file.rs"]
mod sqlite_file;
#[path = "store_suite/time.rs"]
mod time;
#[path = "store_suite/writes.rs"]
mod writes;

/// Runs every behaviour against one home.
macro_rules! suite {
    ($home:ident: $($behaviours:ident { $($behaviour:ident)* })*) => {
        mod $home {
            $(mod $behaviours {
                $(#[tokio::test]
                async fn $behaviour() {
                    crate::$behaviours::$behaviour(&mut crate::fixtures::Home::$home()).await;
                })*
            })*
        }
    };
}

suite! { sqlite:
    organizations {
        an_organization_is_stored_whole
        a_slug_is_never_given_again
        of_fifty_that_want_one_slug_one_gets_it
        an_update_compares_versions_and_raises_them
        nothing_of_another_organization_is_found
        a_key_needs_groups_that_exist
        a_group_stays_while_a_key_belongs_to_it
        a_revoked_key_is_gone_at_once
        keys_say_what_state_their_organization_is_in
        the_last_use_of_a_key_is_noted_to_the_minute
        a_deleted_organization_leaves_its_slug_alone
        lists_come_in_parts_that_neither_repeat_nor_miss
        the_feed_names_each_changed_organization_once
        whoever_missed_the_feed_is_told_of_everything
        the_audit_trail_is_newest_first
        only_the_configuration_raises_the_revision
        a_failing_change_takes_nobody_with_it
        the_store_tells_about_itself
    }
    endpoints {
        an_endpoint_is_stored_whole
        an_mcp_endpoint_is_stored_whole
        an_mcp_server_is_remembered
        an_organization_has_no_more_endpoints_than_allowed
        an_endpoint_name_is_taken_once
        a_settings_update_leaves_what_the_syncs_found
        a_set_of_tools_is_swapped_whole
        a_name_of_another_endpoint_is_refused_and_nothing_changes
        a_set_decided_on_an_older_revision_is_stale
        a_sync_of_an_endpoint_that_is_gone_is_not_found
        hashes_are_accepted_along_with_a_set
        the_last_hundred_syncs_are_kept_newest_first
        declared_tools_come_back_to_the_last_digit
        tools_survive_a_restart
        a_deleted_endpoint_ends_its_open_runs
        a_policy_change_leaves_what_it_does_not_name
        of_fifty_accepted_hashes_and_raised_risks_both_stay
        a_new_endpoint_is_due_before_its_first_sync_ends
    }
    runs {
        a_run_comes_back_byte_for_byte
        a_run_needs_its_endpoint
        a_confirmation_token_starts_one_run
        of_fifty_uses_of_a_token_one_starts_a_run
        an_open_run_changes_and_a_final_one_does_not
        of_fifty_outcomes_one_wins
        a_finished_run_is_recorded_some_time_later
        what_was_to_be_recorded_later_can_be_waited_for
        runs_are_listed_newest_first_and_filtered
        a_page_of_large_runs_is_a_short_one
        usage_counts_by_tool_and_status
        open_runs_are_those_that_can_still_change
        what_was_acknowledged_survives_a_restart
    }
    callbacks {
        an_early_callback_is_answered_and_settles_its_run_once
        a_callback_matches_our_id_before_the_providers_own
        a_callback_never_reaches_another_endpoint_or_organization
        an_early_callback_expires
        only_so_many_early_callbacks_are_kept
        only_so_many_bytes_of_early_callbacks_are_kept
        a_callback_of_a_final_run_is_late
        a_second_result_is_ignored
        a_crash_between_acceptance_and_settling_loses_nothing
        a_second_delivery_after_a_crash_still_matches
        of_fifty_callbacks_one_settles_the_run
        one_webhook_id_settles_once
        a_webhook_id_is_remembered_for_a_day
    }
    time {
        what_is_due_comes_earliest_first_and_is_leased
        only_working_endpoints_of_working_organizations_are_synced
        a_final_run_is_not_due
        payloads_go_before_their_runs
        open_runs_outlive_every_retention
        used_tokens_are_forgotten_after_their_time
        old_audit_syncs_and_feed_are_purged
    }
    operations {
        an_operation_comes_back_whole
        a_step_is_taken_only_upon_the_one_before
        a_run_and_its_operation_change_together
        a_run_is_started_once
        operations_are_listed_newest_first
        what_a_crash_cut_off_is_due_at_once
        what_may_have_been_applied_is_not_called_cancelled
        what_an_operation_said_goes_with_the_payload_of_its_run
    }
    reservations {
        a_key_stands_for_one_run_until_its_time_is_over
        of_fifty_runs_with_one_key_one_is_stored
        only_a_failure_before_anything_was_sent_frees_a_key
        a_live_key_keeps_its_run_whole
    }
    approvals {
        an_approval_comes_back_with_its_run
        an_identical_call_attaches_to_the_open_approval
        of_eight_decisions_one_counts
        a_yes_lets_its_run_go_with_its_operation
        a_yes_needs_everything_as_it_was_checked
        a_teammate_is_asked_once_the_reviewer_is_passed_over
        an_approval_ends_with_its_run
        a_decision_is_not_overtaken
        approvals_of_what_is_deleted_are_denied
        approvals_go_with_their_runs
    }
    writes {
        a_write_is_answered_as_it_was
        of_fifty_writes_with_one_key_one_is_made
        a_write_is_made_with_its_entry
        a_crash_frees_what_was_not_made
        writes_are_forgotten_after_their_time
    }
    deliveries {
        the_end_of_a_run_is_told_once
        who_does_not_listen_is_told_nothing
        a_failing_sync_is_told_when_its_reason_changes
        a_message_is_due_until_it_is_settled
        messages_are_due_once_nobody_listens
        settled_messages_are_forgotten_after_a_week
    }
}
