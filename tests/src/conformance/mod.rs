//! What every coordination store must do, as cases over its role traits.
//!
//! A case gets a [`World`]: an empty store, and helpers that do in one line what a test does not mean
//! to test. It never sees which backend it runs on; what no verb can do (break an entry, lose a
//! reply's effect on the clock) it asks of the backend's [`Harness`]. [`conformance_cases!`] names
//! every case, so that a backend's test binary can make a test of each.
//!
//! A lost reply is a call whose answer the case ignores; a late request is a call that comes after
//! what overtook it. Time passes only through [`World::pass`] and [`World::until`], so a backend may
//! bring a clock of its own.
//!
//! [`conformance_cases!`]: crate::conformance_cases

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "cases are tests: an answer other than the promised one ends them, and the panic says which"
)]

mod world;

pub mod broken;
pub mod changes;
pub mod control;
pub mod delayed;
pub mod field;
pub mod found;
pub mod inspect;
pub mod kept;
pub mod leadership;
pub mod life;
pub mod operate;
pub mod parked;
pub mod pods;
pub mod queue;
pub mod recovery;
pub mod runs;
pub mod schedule;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wasmcron_core::ids::{JobName, PodRef, RunId};
use wasmcron_store::Store;
use wasmcron_store::recovery::Register;
use wasmcron_store::runs::Retention;

pub use world::{LONG, Running, World, definition, keep, report};

/// Settings of a store that answers depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// In how long a window recoveries of a run add up.
    pub recovery_window: Duration,
    /// What is kept of runs whose verb does not say it, such as skipped ones.
    pub retention: Retention,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            recovery_window: Duration::from_secs(3_600),
            retention: Retention {
                age: Duration::from_secs(3_600),
                runs: 100,
            },
        }
    }
}

/// Damage that crashes, failovers and hands do, and no verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The pod's queue and its unclaimed entries are gone.
    QueueLost(PodRef),
    /// An entry stands in the pod's queue that nobody put there.
    QueueEntry(PodRef, String),
    /// The job's lock is gone.
    LockLost(JobName),
    /// Nothing knows any more which run of the job is its active one.
    PlaceLost(JobName),
    /// The entry of a run in a register is gone.
    EntryLost(Register, RunId),
    /// The entry of a run in a register ends in the middle.
    EntryCut(Register, RunId),
    /// None yet: the entry of a run in a register is remembered.
    Remember(Register, RunId),
    /// The remembered entry stands in its register again, as if it had never been moved.
    Restore(Register, RunId),
    /// The store is empty.
    AllLost,
}

/// One backend, with nothing in it at first.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A store over the harness's data; all of them share it.
    async fn store(&self, settings: Settings) -> Arc<dyn Store>;

    /// Lets time pass by the store's clock.
    async fn pass(&self, time: Duration);

    /// Does damage.
    async fn damage(&self, damage: Damage);
}

/// Hands all cases to a macro, as `module: [case, …], …`.
#[macro_export]
macro_rules! conformance_cases {
    ($macro:ident) => {
        $macro! {
            broken: [
                c39_scheduled_and_in_no_queue,
                c39_queued_and_in_no_register,
                c39_running_without_a_lock,
                c39_running_and_scheduled_at_once,
                c39_a_lock_and_nothing_that_runs,
                c39_a_running_entry_cut_short,
                c39_a_scheduled_entry_cut_short,
                c39_a_delayed_entry_cut_short,
                c39_a_due_time_without_an_entry,
                c39_delayed_and_running_at_once,
                c39_running_for_a_job_and_a_pod_that_are_gone,
                c39_an_active_run_without_an_entry_holds_nobody_up,
                c39_the_place_of_a_lost_run_is_cleared,
                c39_a_lost_place_gives_no_right_to_anothers_lock,
                what_comes_back_after_its_record_has_no_attempts,
            ],
            changes: [
                at_first_everything_is_read,
                a_change_is_told_once_to_each,
                nothing_is_missed_beside_a_reading,
                every_hold_is_a_change,
                a_leaders_own_decisions_are_no_changes,
                many_changes_come_in_pages,
                after_a_loss_everything_is_read,
                a_version_from_the_future_is_not_known,
                jobs_are_read_by_name,
            ],
            control: [
                verbs_wake_the_listeners,
                a_slow_listener_holds_nobody_up,
            ],
            delayed: [
                a_manual_run_is_due_at_once,
                a_repeated_request_makes_one_run,
                an_unknown_job_has_no_runs,
                a_backfill_ends_at_the_cursor,
                the_earliest_is_due_first,
                a_repeated_promotion_moves_once,
                a_promotion_needs_a_live_pod,
                a_stuck_run_is_put_off,
                a_run_put_off_comes_back,
                only_a_due_run_is_put_off,
                backfilled_runs_take_turns,
                a_run_that_waits_is_given_up,
            ],
            field: [
                c25_the_next_leader_goes_on_from_the_cursor,
                c53_two_leaders_make_one_run,
                c55_who_is_refused_leaves_no_trap,
                c30_a_deposed_leader_changes_nothing,
            ],
            found: [
                claim_by_token,
                a_repeated_claim_renews_the_lock,
                a_claim_is_settled_before_a_hand_back,
                a_run_is_active_until_it_ends,
                the_holder_is_part_of_the_term,
                a_republish_names_what_it_saw,
                a_backfill_never_meets_a_firing,
                a_new_job_begins_where_it_was_opened,
                decisions_of_a_job_keep_their_order,
                a_late_claim_does_not_take_the_retry,
                what_was_taken_for_nobody_is_found,
                a_retry_is_promoted,
                an_acknowledged_pause_holds,
                a_repeated_finish_is_no_fence,
                a_repeated_save_is_no_fence,
                a_refused_task_is_parked,
            ],
            inspect: [
                the_execution_log_tells_what_happened,
                the_newest_runs_come_first,
                registers_are_counted,
                what_is_not_there_is_none,
                a_record_follows_its_run,
            ],
            kept: [
                the_next_attempt_gets_the_latest_checkpoint,
                c88_an_attempt_without_a_save_keeps_the_checkpoint,
                c85_only_an_acknowledged_save_counts,
                nothing_is_saved_without_the_lock,
                a_checkpoint_is_cleared_between_attempts,
                state_outlives_its_run,
                state_has_a_limit,
                state_on_success_needs_success,
                log_lines_stand_in_order,
                the_latest_progress_is_shown,
                a_checkpoint_is_rewound_between_attempts,
            ],
            leadership: [
                nobody_leads_at_first,
                the_lease_names_its_holder,
                the_second_is_told_who_leads,
                a_repeated_campaign_wins_the_same_term,
                a_lease_that_ran_out_is_free_and_terms_grow,
                c29_renewal_sets_the_full_length,
                a_longer_renewal_is_not_cut,
                only_the_holder_renews,
                c37_another_session_of_the_address_does_not_lead,
                resigning_frees_the_lease,
                c34_resigning_frees_only_ones_own_lease,
                a_lapsed_lease_publishes_nothing,
            ],
            life: [
                from_registration_to_success,
            ],
            operate: [
                a_paused_job_fires_nothing,
                an_unknown_job_cannot_be_operated,
                a_quarantined_job_fires_nothing,
                why_a_job_waits_is_shown,
                a_retired_job_keeps_its_records,
                a_pod_is_asked_to_leave,
                quarantines_are_listed,
                a_held_jobs_times_are_counted,
            ],
            parked: [
                a_parked_run_waits_without_a_time,
                only_so_many_firings_wait,
                the_first_parked_run_goes_on,
                a_pause_of_the_active_run_releases_nothing,
                every_end_releases,
                a_cancelled_parked_run_releases_nobody,
                a_released_run_that_is_cancelled_hands_its_turn_on,
                parking_behind_nobody_is_due_now,
                what_is_not_held_is_not_parked,
            ],
            pods: [
                what_a_pod_says_is_seen,
                standings_carry_the_clock,
                a_repeated_registration_is_current,
                the_later_start_has_the_address,
                a_superseded_session_is_told_so,
                an_empty_store_asks_to_register,
                a_report_replaces_the_last_one,
                a_pod_that_leaves_gets_nothing_more,
                queued_counts_what_is_not_claimed,
                a_silent_pod_is_forgotten,
                a_newcomer_is_not_forgotten,
                a_pod_with_entries_is_not_forgotten,
            ],
            queue: [
                a_take_moves_entries,
                a_waiting_take_gets_the_next_task,
                a_wait_without_a_task_ends,
                an_entry_that_is_none_is_set_aside,
                c48_a_claim_is_one_step,
                numbers_only_grow,
                a_repeated_claim_is_the_same_attempt,
                a_claim_of_nothing_is_stale,
                a_superseded_session_claims_nothing,
                an_overlap_changes_nothing,
                a_skipped_firing_is_over,
                what_has_begun_or_was_asked_for_is_not_skipped,
                a_task_given_back_is_due_again,
                c37_a_dead_sessions_attempt_is_given_back,
            ],
            recovery: [
                c47_the_old_copy_of_a_moved_task_is_inert,
                a_moved_delivery_counts_if_asked,
                c38_a_task_taken_and_not_claimed_is_not_lost,
                an_attempt_without_a_lock_is_followed_by_the_next,
                c44_a_pod_declared_dead_reports_too_late,
                c91_a_late_save_does_not_go_back,
                c34_a_late_finish_leaves_the_successors_lock,
                a_run_that_is_given_up_is_over,
                a_cancelled_run_does_not_survive_its_pod,
                an_attempt_past_its_end_times_out,
                recoveries_add_up_within_a_window,
                c92_a_dead_run_does_not_block_its_job,
                registers_are_read_whole,
            ],
            runs: [
                a_pod_extends_all_its_attempts,
                a_longer_extension_is_not_cut,
                an_attempt_past_its_end_is_not_extended,
                a_superseded_session_extends_nothing,
                c41_a_repeated_finish_is_known,
                a_failed_attempt_is_followed_by_the_next,
                an_outcome_counts_without_its_lock,
                successes_are_counted,
                a_run_that_does_not_execute_is_cancelled_at_once,
                a_run_that_executes_is_asked_to_end,
                records_are_kept_as_long_as_asked,
                a_run_lasts_from_its_first_claim,
                a_run_made_anew_is_listed_once,
            ],
            schedule: [
                a_job_nobody_opened_is_unknown,
                opening_starts_the_cursor,
                a_cursor_never_begins_in_the_future,
                a_changed_definition_moves_the_cursor,
                the_view_has_every_job,
                c43_a_firing_names_its_target,
                a_repeated_publish_is_deduped,
                a_refused_decision_holds_its_job,
                only_a_live_pod_is_a_target,
                a_time_ahead_of_the_clock_is_early,
                a_decision_from_a_lost_cursor_is_held,
                a_gap_moves_the_cursor,
                a_run_that_exists_is_not_made_again,
                a_run_that_is_over_is_left_alone,
                a_call_has_a_limit,
            ],
        }
    };
}

#[cfg(test)]
mod tests {
    const GROUPS: [(&str, &str); 17] = [
        ("broken", include_str!("broken.rs")),
        ("changes", include_str!("changes.rs")),
        ("control", include_str!("control.rs")),
        ("delayed", include_str!("delayed.rs")),
        ("field", include_str!("field.rs")),
        ("found", include_str!("found.rs")),
        ("inspect", include_str!("inspect.rs")),
        ("kept", include_str!("kept.rs")),
        ("leadership", include_str!("leadership.rs")),
        ("life", include_str!("life.rs")),
        ("operate", include_str!("operate.rs")),
        ("parked", include_str!("parked.rs")),
        ("pods", include_str!("pods.rs")),
        ("queue", include_str!("queue.rs")),
        ("recovery", include_str!("recovery.rs")),
        ("runs", include_str!("runs.rs")),
        ("schedule", include_str!("schedule.rs")),
    ];

    macro_rules! names {
        ($($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
            &[$((stringify!($group), &[$(stringify!($case)),*])),*]
        };
    }

    #[test]
    fn every_case_is_listed_in_its_order() {
        let listed: &[(&str, &[&str])] = conformance_cases!(names);
        for ((group, text), (listed_group, listed)) in GROUPS.iter().zip(listed) {
            let case = |line: &str| {
                let (name, rest) = line.strip_prefix("pub async fn ")?.split_once('(')?;
                rest.starts_with("world: World").then(|| name.to_owned())
            };
            let written: Vec<String> = text.lines().filter_map(case).collect();
            assert_eq!(
                (group, &written[..]),
                (
                    listed_group,
                    &listed.iter().map(ToString::to_string).collect::<Vec<_>>()[..]
                )
            );
        }
        assert_eq!(GROUPS.len(), listed.len());
    }
}
