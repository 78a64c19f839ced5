//! The sync against a source and a target in memory. `c85` and so on are cases from the field that
//! broke other resumable jobs.

mod world;

use std::cell::RefCell;
use std::time::Duration;

use wasmcron_guest::StopReason;
use wasmcron_guest::testing::{Attempt, Ended, Fault, kill_everywhere};

use crate::progress::Phase;
use world::{Shared, Trouble, counted, world};

fn assert_done(attempt: &Attempt) {
    assert!(
        matches!(attempt.ended, Ended::Done(_)),
        "{:?}",
        attempt.ended
    );
}

fn retry_message(ended: Ended) -> (String, Option<Duration>) {
    match ended {
        Ended::Retry { message, after } => (message, after),
        other => panic!("expected a retry, found {other:?}"),
    }
}

fn fatal_message(ended: Ended) -> String {
    match ended {
        Ended::Fatal(message) => message,
        other => panic!("expected a fatal failure, found {other:?}"),
    }
}

#[test]
fn a_sync_copies_verifies_switches_and_cleans_up() {
    let (mut harness, world) = counted(10, 4);
    world
        .borrow_mut()
        .indexes
        .insert("merchants.old.1".to_owned(), Default::default());
    world.borrow_mut().alias = Some("merchants.old.1".to_owned());
    let attempt = harness.attempt();
    let Ended::Done(summary) = &attempt.ended else {
        panic!("{:?}", attempt.ended)
    };
    assert!(
        summary.starts_with("10 rows in merchants.job-2026-01-01t00-00-00z-"),
        "{summary}"
    );
    assert!(
        summary.ends_with(".1, scan 1, 1 old indexes removed"),
        "{summary}"
    );
    world.borrow().assert_synced();
    assert_eq!(attempt.saves, 6, "created, three pages, verified, switched");
    let last = harness.progress().pop().expect("progress");
    assert_eq!((last.done, last.total), (10.0, Some(10.0)));
}

#[test]
fn c85_a_kill_between_write_and_checkpoint_repeats_one_page_and_loses_none() {
    let (mut harness, world) = counted(10, 5);
    // Delete, create, page 1, write 1, page 2, write 2: the second write's answer never comes.
    assert_eq!(
        harness.attempt_with(Fault::KillAfterRequests(6)).ended,
        Ended::Killed
    );
    let Phase::Scan(scan) = harness.checkpoint().expect("a checkpoint").phase else {
        panic!("still scanning");
    };
    assert_eq!(scan.rows, 5, "the cursor moves after the write, not before");
    assert_done(&harness.attempt());
    let world = world.borrow();
    world.assert_synced();
    let writes: Vec<_> = world.writes.values().copied().collect();
    assert_eq!(writes, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
}

#[test]
fn c85_a_kill_at_any_host_call_leaves_target_equal_to_source() {
    let current: RefCell<Option<Shared>> = RefCell::default();
    let killed = kill_everywhere(
        || {
            let (harness, world) = counted(7, 3);
            world
                .borrow_mut()
                .indexes
                .insert("merchants.old.1".to_owned(), Default::default());
            world.borrow_mut().alias = Some("merchants.old.1".to_owned());
            current.replace(Some(world));
            harness
        },
        |_, last| {
            assert_done(last);
            current
                .borrow()
                .as_ref()
                .expect("a world")
                .borrow()
                .assert_synced();
        },
    );
    assert!(killed > 30, "{killed} kills");
}

#[test]
fn c86_rows_with_equal_times_at_the_cut_are_not_lost() {
    let (mut harness, world) = world(&[("k16", "1"), ("k16", "2"), ("k16", "3")], 2);
    // The checkpoints: created, first page.
    assert_eq!(
        harness.attempt_with(Fault::KillAfterSaves(2)).ended,
        Ended::Killed
    );
    assert_done(&harness.attempt());
    assert_eq!(world.borrow().in_service(), ["1", "2", "3"]);
    assert_eq!(world.borrow().writes["1"], 1, "no row was written twice");
}

#[test]
fn c86_an_unsorted_source_is_refused_and_never_cut_short() {
    let rows = [
        ("k5", "5"),
        ("k1", "1"),
        ("k3", "3"),
        ("k2", "2"),
        ("k4", "4"),
    ];
    let (mut harness, in_a_page) = world(&rows, 5);
    let message = fatal_message(harness.attempt().ended);
    assert!(
        message.contains("not sorted by (updated_at, id)"),
        "{message}"
    );
    assert_eq!(in_a_page.borrow().alias, None);

    // Row by row each page is sorted: the count gives it away.
    let (mut harness, by_pages) = world(&rows, 1);
    assert_eq!(
        harness.attempt_with(Fault::KillAfterSaves(2)).ended,
        Ended::Killed
    );
    let message = fatal_message(harness.finish(1).ended);
    assert!(
        message.contains("the source counts 5 rows, 1 were read"),
        "{message}"
    );
    assert_eq!(by_pages.borrow().alias, None);
}

#[test]
fn c87_a_page_that_was_not_written_is_written_by_the_next_attempt() {
    let (mut harness, world) = counted(6, 3);
    // Delete, create, first write; then the second write fails three times.
    let fine = vec![Trouble::None; 3];
    let fails = vec![Trouble::Status(500); 3];
    world.borrow_mut().target_trouble = [fine, fails].concat().into();
    let (message, _) = retry_message(harness.attempt().ended);
    assert!(message.contains("status 500"), "{message}");
    let checkpoint = harness.checkpoint().expect("a checkpoint");
    assert!(matches!(checkpoint.phase, Phase::Scan(scan) if scan.rows == 3));
    assert_done(&harness.attempt());
    world.borrow().assert_synced();
}

#[test]
fn c87_no_rows_are_no_success() {
    let (mut harness, world) = counted(0, 3);
    let message = fatal_message(harness.attempt().ended);
    assert!(
        message.contains("`min_rows` is 1: the alias was not switched"),
        "{message}"
    );
    assert_eq!(world.borrow().alias, None);
}

#[test]
fn c88_a_second_failure_before_the_first_save_keeps_the_cursor() {
    let (mut harness, world) = counted(9, 3);
    let fails = || vec![Trouble::Status(503); 3];
    world.borrow_mut().source_trouble = [vec![Trouble::None; 2], fails()].concat().into();
    retry_message(harness.attempt().ended);
    let first = harness.checkpoint();
    world.borrow_mut().source_trouble = fails().into();
    let second = harness.attempt();
    assert_eq!(second.saves, 0);
    assert_eq!(harness.checkpoint(), first);
    assert_done(&harness.attempt());
    world.borrow().assert_synced();
    assert!(
        world.borrow().writes.values().all(|writes| *writes == 1),
        "it began at row 6"
    );
}

#[test]
fn a_broken_connection_is_tried_again_at_once_and_then_left_to_the_next_attempt() {
    let (mut harness, world) = counted(6, 3);
    world.borrow_mut().source_trouble = vec![Trouble::Lost, Trouble::Status(502)].into();
    // A write whose answer is lost is repeated.
    world.borrow_mut().target_trouble = vec![Trouble::None, Trouble::None, Trouble::Lost].into();
    assert_done(&harness.attempt());
    world.borrow().assert_synced();

    let (mut harness, world) = counted(6, 3);
    world.borrow_mut().source_trouble = vec![Trouble::Lost; 3].into();
    let (message, after) = retry_message(harness.attempt().ended);
    assert!(message.contains("connection refused"), "{message}");
    assert_eq!(after, Some(Duration::from_secs(5)));
}

#[test]
fn a_status_that_does_not_pass_is_fatal() {
    let (mut harness, world) = counted(6, 3);
    world.borrow_mut().source_trouble = vec![Trouble::Status(401)].into();
    assert!(fatal_message(harness.attempt().ended).contains("status 401"));
}

#[test]
fn a_page_that_is_served_again_counts_once() {
    let (mut harness, world) = counted(9, 3);
    let trouble = vec![
        Trouble::None,
        Trouble::Repeat,
        Trouble::None,
        Trouble::Repeat,
    ];
    world.borrow_mut().source_trouble = trouble.into();
    assert_done(&harness.attempt());
    world.borrow().assert_synced();
    assert!(world.borrow().writes.values().all(|writes| *writes == 1));
}

#[test]
fn a_source_that_repeats_for_ever_is_left_to_the_next_attempt() {
    let (mut harness, world) = counted(9, 3);
    let mut trouble = vec![Trouble::Repeat; 40];
    trouble[0] = Trouble::None;
    world.borrow_mut().source_trouble = trouble.into();
    let (message, _) = retry_message(harness.attempt().ended);
    assert!(message.contains("without new rows"), "{message}");
}

#[test]
fn a_source_that_changes_is_scanned_again_into_another_index() {
    let (mut harness, world) = counted(9, 3);
    world.borrow_mut().source_trouble = vec![Trouble::None, Trouble::Change].into();
    let attempt = harness.attempt();
    assert!(matches!(&attempt.ended, Ended::Done(summary) if summary.contains("scan 2")));
    let world = world.borrow();
    world.assert_synced();
    let versions = world.indexes.values().flat_map(|index| index.values());
    assert!(
        versions.clone().all(|document| document["version"] == 2),
        "no row of version 1"
    );
    assert!(
        harness
            .logs()
            .iter()
            .any(|line| line.message == "scanning from the beginning")
    );
}

#[test]
fn a_source_that_changes_between_attempts_is_noticed_by_the_next() {
    let (mut harness, world) = counted(9, 3);
    harness.attempt_with(Fault::KillAfterSaves(3));
    world.borrow_mut().version += 1;
    world.borrow_mut().rows.truncate(7);
    assert_done(&harness.attempt());
    world.borrow().assert_synced();
}

#[test]
fn a_source_that_never_rests_ends_the_run_with_the_reason() {
    let (mut harness, world) = counted(9, 3);
    world.borrow_mut().source_trouble = [Trouble::None, Trouble::Change].repeat(20).into();
    let message = fatal_message(harness.attempt().ended);
    assert!(
        message.contains("changes faster than it can be read"),
        "{message}"
    );
    assert_eq!(world.borrow().alias, None);
}

#[test]
fn a_target_that_lost_a_row_is_written_again_once_and_then_refused() {
    let (mut harness, world) = counted(6, 3);
    let drops = vec![Trouble::None, Trouble::None, Trouble::DropRow];
    world.borrow_mut().target_trouble = drops.clone().into();
    assert!(matches!(harness.attempt().ended, Ended::Done(summary) if summary.contains("scan 2")));
    world.borrow().assert_synced();

    let (mut harness, world) = counted(6, 3);
    // Delete, create, two writes, stats; then the same again.
    let rest = vec![Trouble::None; 2];
    world.borrow_mut().target_trouble = [drops.clone(), rest, drops].concat().into();
    let message = fatal_message(harness.attempt().ended);
    assert!(message.contains("the target holds 5"), "{message}");
    assert!(message.contains("the alias was not switched"), "{message}");
    assert_eq!(world.borrow().alias, None);
}

#[test]
fn an_index_that_was_removed_under_the_sync_is_written_anew() {
    let (mut harness, world) = counted(9, 3);
    harness.attempt_with(Fault::KillAfterSaves(2));
    world.borrow_mut().indexes.clear();
    assert_done(&harness.attempt());
    world.borrow().assert_synced();
}

#[test]
fn a_run_without_its_checkpoint_does_not_touch_the_index_in_service() {
    let (mut harness, world) = counted(9, 3);
    assert_done(&harness.attempt());
    let served = world.borrow().alias.clone();
    harness.next_run("job@2026-01-01T00:00:00Z");
    assert_done(&harness.attempt());
    let world = world.borrow();
    assert_ne!(
        world.alias, served,
        "another index was filled and put in service"
    );
    assert_eq!(world.in_service(), world.source_ids());
    assert_eq!(world.indexes.len(), 1);
}

#[test]
fn a_straggler_stops_where_the_target_refuses_it() {
    let (mut harness, world) = counted(9, 3);
    harness.attempt_with(Fault::KillAfterSaves(2));
    world.borrow_mut().fence = format!("{:020}", 7);
    let (message, _) = retry_message(harness.attempt().ended);
    assert!(
        message.contains("another attempt writes to the target"),
        "{message}"
    );
}

#[test]
fn a_drain_yields_and_the_run_goes_on_where_it_was() {
    let (mut harness, world) = counted(9, 3);
    let drain = Fault::StopAfterSaves(3, StopReason::Draining);
    assert_eq!(harness.attempt_with(drain).ended, Ended::Yielded);
    assert_done(&harness.attempt());
    world.borrow().assert_synced();
    assert!(world.borrow().writes.values().all(|writes| *writes == 1));

    let (mut harness, _) = counted(9, 3);
    let cancel = Fault::StopAfterRequests(4, StopReason::Cancelled);
    assert_eq!(harness.attempt_with(cancel).ended, Ended::Cancelled);
}

#[test]
fn parameters_out_of_range_are_fatal_and_named() {
    for (key, value) in [
        ("page_size", serde_json::json!(0)),
        ("alias", serde_json::json!("a.b")),
    ] {
        let (harness, _) = counted(1, 1);
        let params =
            serde_json::json!({ "source": "http://s/", "target": "http://t/", key: value });
        let message = fatal_message(harness.params(&params).attempt().ended);
        assert!(
            message.starts_with(&format!("parameter `{key}`")),
            "{message}"
        );
    }
}
