//! Checkpoints, state, logs and progress.

use std::time::Duration;

use wasmcron_core::run::{Progress, RunState};
use wasmcron_store::inspect::{Cleared, Rewound};
use wasmcron_store::queue::Hold;
use wasmcron_store::runs::{Finished, LogLine, Saved, StateWrite, Written};

use super::world::{Running, World};

async fn one(world: &World) -> Running {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world.running(&term, &job, 1, &pod).await
}

/// A run's next attempt, after the last one was interrupted.
async fn next(world: &World, last: &Running) -> Running {
    let hold = Hold::Fence {
        fence: last.at.fence,
        counted: false,
    };
    let mut back = world.back(&last.pod, &last.at.run, hold);
    back.avoid = false;
    world.store.hand_back(&back).await.expect("hand_back");
    let leader = world
        .store
        .leader()
        .await
        .expect("leader")
        .expect("one leads");
    let term = wasmcron_store::leadership::TermRef {
        pod: leader.pod,
        term: leader.term,
    };
    world.promoted(&term, &last.at.run, &last.pod).await;
    world.begin(&last.pod).await
}

/// The next attempt gets the latest checkpoint with everything about it.
pub async fn the_next_attempt_gets_the_latest_checkpoint(world: World) {
    let first = one(&world).await;
    for seq in 1..=5_u8 {
        first.save(&world, seq.into(), &[seq, 0xff, b'|', 0]).await;
    }
    let second = next(&world, &first).await;
    let kept = second.attempt.checkpoint.clone().expect("a checkpoint");
    assert_eq!((kept.seq, kept.schema, kept.attempt), (5, 3, 1));
    assert_eq!(
        (kept.fence, kept.data),
        (first.at.fence, vec![5, 0xff, b'|', 0])
    );
    assert_eq!(kept.digest, wasmcron_core::ids::Digest::of(b"p"));
    second.save(&world, 6, b"").await;
    let stored = world
        .store
        .checkpoint(&first.at.run)
        .await
        .expect("checkpoint");
    let stored = stored.expect("a checkpoint");
    assert_eq!(
        (stored.seq, stored.attempt, stored.data.len()),
        (6, 2, 0),
        "empty is not none"
    );
    let record = world.record(&first.at.run).await;
    let from: Vec<_> = record
        .attempts
        .iter()
        .map(|attempt| attempt.resumed_from)
        .collect();
    assert_eq!(from, [None, Some(5)]);
}

/// An attempt that saves nothing leaves the checkpoint of the one before.
pub async fn c88_an_attempt_without_a_save_keeps_the_checkpoint(world: World) {
    let first = one(&world).await;
    first.save(&world, 1, b"fifty").await;
    let second = next(&world, &first).await;
    let third = next(&world, &second).await;
    let kept = third.attempt.checkpoint.clone().expect("a checkpoint");
    assert_eq!((kept.seq, kept.data.as_slice()), (1, b"fifty".as_slice()));
    world.store.finish(&third.failure()).await.expect("finish");
    let kept = world
        .store
        .checkpoint(&third.at.run)
        .await
        .expect("checkpoint");
    assert_eq!(
        kept.map(|kept| kept.data),
        Some(b"fifty".to_vec()),
        "kept after a failure"
    );
}

/// Only what was acknowledged is ever resumed from: a save that was refused is not there.
pub async fn c85_only_an_acknowledged_save_counts(world: World) {
    let first = one(&world).await;
    first.save(&world, 1, b"five").await;
    let mut big = first.checkpoint(2, b"ten!");
    big.limit = 3;
    assert_eq!(
        world.store.save_checkpoint(&big).await.expect("save"),
        Saved::TooLarge(3)
    );
    let second = next(&world, &first).await;
    assert_eq!(
        second.attempt.checkpoint.as_ref().map(|kept| kept.seq),
        Some(1)
    );
    second.save(&world, 2, b"six").await;
    let stored = world
        .store
        .checkpoint(&first.at.run)
        .await
        .expect("checkpoint");
    assert_eq!(stored.map(|kept| kept.data), Some(b"six".to_vec()));
}

/// Without the job's lock nothing is saved, even if nobody took the run over yet.
pub async fn nothing_is_saved_without_the_lock(world: World) {
    let running = one(&world).await;
    running.save(&world, 1, b"one").await;
    world.expire(&running).await;
    let saved = world
        .store
        .save_checkpoint(&running.checkpoint(2, b"two"))
        .await;
    assert_eq!(saved.expect("save"), Saved::Fenced);
    let write = StateWrite {
        key: "k".into(),
        value: Some(b"v".to_vec()),
    };
    let written = world.store.set_state(&running.at, &write, 100).await;
    assert_eq!(written.expect("set_state"), Written::Fenced);
    let stored = world
        .store
        .checkpoint(&running.at.run)
        .await
        .expect("checkpoint");
    assert_eq!(stored.map(|kept| kept.seq), Some(1));
}

/// An operator clears a checkpoint, but not under a running attempt.
pub async fn a_checkpoint_is_cleared_between_attempts(world: World) {
    let store = &world.store;
    let first = one(&world).await;
    first.save(&world, 1, b"one").await;
    let run = &first.at.run;
    let clear = async || {
        store
            .clear_checkpoint(run, "ann")
            .await
            .expect("clear_checkpoint")
    };
    assert_eq!(clear().await, Cleared::Running);
    store
        .finish(&first.retry(Duration::ZERO))
        .await
        .expect("finish");
    assert_eq!(clear().await, Cleared::Cleared);
    assert_eq!(clear().await, Cleared::None);
    assert_eq!(store.checkpoint(run).await.expect("checkpoint"), None);
}

/// State outlives the run that wrote it.
pub async fn state_outlives_its_run(world: World) {
    let store = &world.store;
    let running = one(&world).await;
    let job = &running.at.job;
    let set = async |key: &str, value: Option<&[u8]>, limit| {
        let write = StateWrite {
            key: key.into(),
            value: value.map(<[u8]>::to_vec),
        };
        store
            .set_state(&running.at, &write, limit)
            .await
            .expect("set_state")
    };
    let get = async |key: &str| store.get_state(job, key).await.expect("get_state");
    assert_eq!(get("a").await, None);
    assert_eq!(set("a", Some(b"\0|\xff"), 100).await, Written::Written);
    assert_eq!(set("empty", Some(b""), 100).await, Written::Written);
    assert_eq!(get("a").await.as_deref(), Some(b"\0|\xff".as_slice()));
    assert_eq!(get("empty").await.as_deref(), Some(b"".as_slice()));
    assert_eq!(set("a", None, 100).await, Written::Written);
    assert_eq!(set("a", None, 100).await, Written::Written);
    assert_eq!(get("a").await, None);
    store.finish(&running.failure()).await.expect("finish");
    assert_eq!(get("empty").await.as_deref(), Some(b"".as_slice()));
    assert_eq!(set("late", Some(b"x"), 100).await, Written::Fenced);
}

/// The limit counts keys and values together; what makes the state smaller is always taken.
pub async fn state_has_a_limit(world: World) {
    let store = &world.store;
    let running = one(&world).await;
    let set = async |key: &str, value: Option<&[u8]>, limit| {
        let write = StateWrite {
            key: key.into(),
            value: value.map(<[u8]>::to_vec),
        };
        store
            .set_state(&running.at, &write, limit)
            .await
            .expect("set_state")
    };
    assert_eq!(set("ab", Some(b"12345678"), 10).await, Written::Written);
    assert_eq!(set("c", Some(b""), 10).await, Written::TooLarge(10));
    assert_eq!(
        set("ab", Some(b"123456789"), 10).await,
        Written::TooLarge(10)
    );
    assert_eq!(
        set("ab", Some(b"1234567"), 5).await,
        Written::Written,
        "smaller than before"
    );
    assert_eq!(set("c", Some(b""), 10).await, Written::Written);
    let mut finish = running.success();
    finish.state_limit = 10;
    let write = |key: &str, value: Option<&[u8]>| StateWrite {
        key: key.into(),
        value: value.map(<[u8]>::to_vec),
    };
    finish.state = vec![write("d", Some(b"1"))];
    assert_eq!(
        store.finish(&finish).await.expect("finish"),
        Finished::TooLarge(10)
    );
    assert_eq!(
        world.state(&running.at.run).await,
        RunState::Running,
        "nothing was changed"
    );
    finish.state = vec![
        write("ab", None),
        write("d", Some(b"1")),
        write("d", Some(b"12345678")),
    ];
    assert_eq!(
        store.finish(&finish).await.expect("finish"),
        Finished::Finished
    );
    let job = &running.at.job;
    assert_eq!(store.get_state(job, "ab").await.expect("get_state"), None);
    let last = store.get_state(job, "d").await.expect("get_state");
    assert_eq!(
        last.as_deref(),
        Some(b"12345678".as_slice()),
        "the later write"
    );
}

/// State that is to take effect with success does not without it.
pub async fn state_on_success_needs_success(world: World) {
    let running = one(&world).await;
    let mut finish = running.failure();
    finish.state = vec![StateWrite {
        key: "k".into(),
        value: Some(b"v".to_vec()),
    }];
    world.store.finish(&finish).await.expect("finish");
    let state = world.store.get_state(&running.at.job, "k").await;
    assert_eq!(state.expect("get_state"), None);
}

fn line(n: u32) -> LogLine {
    LogLine {
        at: wasmcron_core::time::Timestamp::from_millis(i64::from(n)),
        attempt: 1,
        level: "info".into(),
        message: format!("line|{n} \"ü\""),
        fields: vec![("n".into(), n.to_string())],
    }
}

/// Lines stand in their order, are read in pages, and come once although a call was repeated.
pub async fn log_lines_stand_in_order(world: World) {
    let store = &world.store;
    let running = one(&world).await;
    let lines: Vec<LogLine> = (0..5).map(line).collect();
    let append = async |lines: &[LogLine], max| {
        store
            .append_log(&running.at, lines, max)
            .await
            .expect("append_log")
    };
    for _ in 0..2 {
        assert_eq!(append(&lines[..3], 100).await, Written::Written);
    }
    assert_eq!(append(&lines[3..], 100).await, Written::Written);
    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let page = store
            .log(&running.at.run, after.as_deref(), 2)
            .await
            .expect("log");
        read.extend(page.lines);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(read, lines);
    assert_eq!(append(&[line(9)], 2).await, Written::Written);
    let page = store.log(&running.at.run, None, 100).await.expect("log");
    assert_eq!(page.lines, [line(4), line(9)], "the oldest go");
    store.finish(&running.success()).await.expect("finish");
    assert_eq!(append(&lines, 100).await, Written::Fenced);
}

/// The latest progress is shown while the run executes and after it ended.
pub async fn the_latest_progress_is_shown(world: World) {
    let store = &world.store;
    let running = one(&world).await;
    let progress = |done: f64| Progress {
        done,
        total: Some(8.5),
        message: "a|b \"c\"".into(),
    };
    for done in [1.0, 2.5] {
        let written = store.report_progress(&running.at, &progress(done)).await;
        assert_eq!(written.expect("report_progress"), Written::Written);
    }
    assert_eq!(
        world.record(&running.at.run).await.progress,
        Some(progress(2.5))
    );
    let page = store.running(None).await.expect("running");
    assert_eq!(page.entries[0].progress, Some(progress(2.5)));
    store.finish(&running.success()).await.expect("finish");
    assert_eq!(
        world.record(&running.at.run).await.progress,
        Some(progress(2.5))
    );
    let late = store.report_progress(&running.at, &progress(9.0)).await;
    assert_eq!(late.expect("report_progress"), Written::Fenced);
}

/// Three checkpoints are kept; an operator goes back to one of them, not while the run executes.
pub async fn a_checkpoint_is_rewound_between_attempts(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let first = world.running(&term, &job, 1, &pod).await;
    let run = first.at.run.clone();
    let kept = async || -> Vec<(u64, Vec<u8>)> {
        let kept = store.checkpoints(&run).await.expect("checkpoints");
        kept.into_iter().map(|one| (one.seq, one.data)).collect()
    };
    let rewind = async |seq| {
        let done = store.rewind_checkpoint(&run, seq, "ann").await;
        done.expect("rewind_checkpoint")
    };
    assert_eq!(kept().await, []);
    for seq in 1..=5 {
        first
            .save(&world, seq, &[u8::try_from(seq).expect("few")])
            .await;
    }
    assert_eq!(kept().await, [(5, vec![5]), (4, vec![4]), (3, vec![3])]);
    assert_eq!(rewind(4).await, Rewound::Running);
    store.finish(&first.yields(0)).await.expect("finish");
    for seq in [0, 2, 6] {
        assert_eq!(rewind(seq).await, Rewound::None, "{seq}");
    }
    assert_eq!(rewind(4).await, Rewound::Rewound);
    assert_eq!(kept().await, [(4, vec![4]), (3, vec![3])]);
    assert_eq!(rewind(5).await, Rewound::None, "later ones are gone");
    world.promoted(&term, &run, &pod).await;
    let second = world.begin(&pod).await;
    let checkpoint = second.attempt.checkpoint.clone().expect("a checkpoint");
    assert_eq!((checkpoint.seq, checkpoint.data), (4, vec![4]));
    second.save(&world, 5, b"new").await;
    assert_eq!(
        kept().await,
        [(5, b"new".to_vec()), (4, vec![4]), (3, vec![3])]
    );
}
