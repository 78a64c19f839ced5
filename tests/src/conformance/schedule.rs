//! Definitions, firings and gaps.

use wasmcron_core::ids::RunId;
use wasmcron_core::run::RunState;
use wasmcron_core::task::TASK_MAX_BYTES;
use wasmcron_core::time::Timestamp;
use wasmcron_store::StoreError;
use wasmcron_store::runs::Finished;
use wasmcron_store::schedule::{Decision, Opened, PUBLISH_MAX, Published};

use super::LONG;
use super::world::{World, definition, report, stored};

/// A job that nobody opened is unknown, and its firings are held.
pub async fn a_job_nobody_opened_is_unknown(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.name("j");
    assert_eq!(world.store.job(&job).await.expect("job"), None);
    let answers = world.publish(&term, &[world.firing(&job, 1, &pod)]).await;
    let cursor = Timestamp::EPOCH;
    assert_eq!(answers, [Published::Held { cursor }]);
}

/// Opening starts the cursor where the definition begins to rule; a repeat answers the same.
pub async fn opening_starts_the_cursor(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.name("j");
    let stored = stored(definition(), world.at(5));
    let cursor = world.at(5);
    for _ in 0..2 {
        let opened = world.store.open(&term, &job, None, &stored).await;
        assert_eq!(opened.expect("open"), Opened::Opened { cursor });
    }
    let view = world.store.job(&job).await.expect("job").expect("a view");
    assert_eq!((view.cursor, &view.stored), (cursor, &stored));
    assert_eq!(
        (view.paused, view.quarantined, view.active),
        (None, None, None)
    );
    assert!(world.store.gaps(&job, 10).await.expect("gaps").is_empty());
}

/// A definition said to rule from tomorrow on does not answer today's times.
pub async fn a_cursor_never_begins_in_the_future(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.name("j");
    let stored = stored(definition(), world.now().await + LONG);
    let opened = world
        .store
        .open(&term, &job, None, &stored)
        .await
        .expect("open");
    let Opened::Opened { cursor } = opened else {
        panic!("{opened:?}");
    };
    assert!(cursor <= world.now().await);
}

/// A changed definition rules from its time on and leaves a gap that says so; one decided from an
/// old view is refused; the cursor never goes back.
pub async fn a_changed_definition_moves_the_cursor(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let first = definition().hash();
    let mut changed = definition();
    changed.exclusive = true;
    let second = stored(changed.clone(), world.at(10));
    for was in [None, Some(&second.hash)] {
        let opened = store.open(&term, &job, was, &second).await.expect("open");
        assert_eq!(opened, Opened::Changed, "{was:?}");
    }
    let cursor = world.at(10);
    let opened = store.open(&term, &job, Some(&first), &second).await;
    assert_eq!(opened.expect("open"), Opened::Opened { cursor });
    let gaps = store.gaps(&job, 10).await.expect("gaps");
    assert_eq!(gaps.len(), 1);
    assert_eq!(
        (gaps[0].to, gaps[0].why.as_str()),
        (cursor, "schedule changed")
    );

    world.fire(&term, &job, 20, &pod).await;
    changed.params = "{}".into();
    let third = stored(changed, world.at(15));
    let opened = store.open(&term, &job, Some(&second.hash), &third).await;
    let cursor = world.at(20);
    assert_eq!(
        opened.expect("open"),
        Opened::Opened { cursor },
        "never back"
    );
    assert_eq!(world.cursor(&job).await, cursor);
}

/// All jobs are on some page of the view.
pub async fn the_view_has_every_job(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let mut names = Vec::new();
    for n in 0..40 {
        names.push(world.job(&term, &format!("job-{n:02}")).await);
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = world.store.view(cursor).await.expect("view");
        assert_eq!(page.corrupt, Vec::<String>::new());
        seen.extend(page.jobs.into_iter().map(|view| view.job));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen, names);
}

/// What a firing writes: the entry with everything that recovery needs, the record, the queue.
pub async fn c43_a_firing_names_its_target(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let run = world.fire(&term, &job, 3, &pod).await;
    let page = world.store.scheduled(None).await.expect("scheduled");
    let [entry] = page.entries.as_slice() else {
        panic!("{page:?}");
    };
    assert_eq!((&entry.pod, &entry.session), (&pod.address, &pod.session));
    assert_eq!((&entry.task.run, entry.task.attempt), (&run, 1));
    assert!(entry.published_at <= world.now().await);
    let taken = world.take_one(&pod).await;
    assert_eq!((taken.run, taken.delivery), (run.clone(), entry.delivery));
    let runs = world.store.runs(&job, 10).await.expect("runs");
    assert_eq!(runs.len(), 1);
    assert_eq!((&runs[0].run, runs[0].nominal), (&run, world.at(3)));
}

/// A nominal time at or before the cursor has its answer: a repeat publishes nothing.
pub async fn a_repeated_publish_is_deduped(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let batch = [world.firing(&job, 1, &pod), world.firing(&job, 2, &pod)];
    assert_eq!(
        world.publish(&term, &batch).await,
        [Published::Published; 2]
    );
    let cursor = world.at(2);
    assert_eq!(
        world.publish(&term, &batch).await,
        [Published::Deduped { cursor }; 2]
    );
    assert_eq!(world.take(&pod).await.len(), 2);
}

/// What is refused keeps the job's later decisions back, and no other job's.
pub async fn a_refused_decision_holds_its_job(world: World) {
    let (pod, gone) = (world.pod("a").await, world.session("gone"));
    let term = world.lead(&pod).await;
    let (j, k) = (world.job(&term, "j").await, world.job(&term, "k").await);
    let answers = world
        .publish(
            &term,
            &[
                world.firing(&j, 1, &gone),
                world.firing(&j, 2, &pod),
                world.gap(&j, 3, 4, "misfire"),
                world.firing(&k, 1, &pod),
            ],
        )
        .await;
    let held = Published::Held {
        cursor: world.at(0),
    };
    assert_eq!(
        answers,
        [Published::NoPod, held, held, Published::Published]
    );
    assert_eq!(world.cursor(&j).await, world.at(0));
    assert_eq!(world.store.run(&world.run(&j, 2)).await.expect("run"), None);
}

/// A pod that is unknown, has not beaten yet, drains or left is no target.
pub async fn only_a_live_pod_is_a_target(world: World) {
    let (leader, drains, left) = (
        world.pod("a").await,
        world.pod("b").await,
        world.pod("c").await,
    );
    let term = world.lead(&leader).await;
    let job = world.job(&term, "j").await;
    let load = wasmcron_core::view::PodLoad {
        draining: true,
        ..Default::default()
    };
    world
        .store
        .heartbeat(&drains, &load, LONG)
        .await
        .expect("heartbeat");
    world.store.leave(&left).await.expect("leave");
    let newcomer = world.session("d");
    let now = world.now().await;
    let registered = world.store.register(&newcomer, now, &report(now)).await;
    registered.expect("register");
    for target in [world.session("nobody"), newcomer, drains, left] {
        let answers = world
            .publish(&term, &[world.firing(&job, 1, &target)])
            .await;
        assert_eq!(answers, [Published::NoPod], "{}", target.address);
    }
    assert_eq!(world.cursor(&job).await, world.at(0), "the run stays due");
}

/// A time too far ahead of the store's clock is not published, whatever the leader's clock says.
pub async fn a_time_ahead_of_the_clock_is_early(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let answers = world
        .publish(&term, &[world.firing(&job, 3_700, &pod)])
        .await;
    assert_eq!(answers, [Published::Early]);
    let gap = world.gap(&job, 1, 3_700, "misfire");
    assert_eq!(world.publish(&term, &[gap]).await, [Published::Early]);
}

/// A decision made from a cursor that the store lost is held, and nothing of it is written: between
/// the store's cursor and the one it was made from lie times that it must not answer.
pub async fn a_decision_from_a_lost_cursor_is_held(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world.fire(&term, &job, 1, &pod).await;
    let from = |decision: Decision, after: Timestamp| match decision {
        Decision::Fire { task, to, .. } => Decision::Fire { task, to, after },
        Decision::Gap { job, gap, .. } => Decision::Gap { job, gap, after },
    };
    let (fire, gap) = (
        world.firing(&job, 4, &pod),
        world.gap(&job, 4, 5, "misfire"),
    );
    let cursor = world.at(1);
    for lost in [fire.clone(), gap] {
        let answers = world
            .publish(&term, &[from(lost, world.at(3)), fire.clone()])
            .await;
        assert_eq!(answers, [Published::Held { cursor }; 2], "and what follows");
    }
    assert_eq!(world.cursor(&job).await, cursor);
    let run = world.store.run(&world.run(&job, 4)).await.expect("run");
    assert_eq!(run, None);
    assert!(world.store.gaps(&job, 9).await.expect("gaps").is_empty());
    assert_eq!(world.take(&pod).await.len(), 1, "the first one");
    let decisions = [
        from(world.firing(&job, 2, &pod), world.at(1)),
        from(world.firing(&job, 3, &pod), world.at(2)),
    ];
    let answers = world.publish(&term, &decisions).await;
    assert_eq!(
        answers,
        [Published::Published; 2],
        "each from the one before"
    );
}

/// A gap answers all times up to its end; one that overlaps what is decided is held.
pub async fn a_gap_moves_the_cursor(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let decisions = [
        world.gap(&job, 1, 3, "misfire"),
        world.firing(&job, 4, &pod),
        world.gap(&job, 5, 6, "coa|lesced"),
    ];
    assert_eq!(
        world.publish(&term, &decisions).await,
        [Published::Published; 3]
    );
    let cursor = world.at(6);
    assert_eq!(world.cursor(&job).await, cursor);
    let found = world.store.gaps(&job, 10).await.expect("gaps");
    let mut wanted = Vec::new();
    for decision in [&decisions[2], &decisions[0]] {
        if let Decision::Gap { gap, .. } = decision {
            wanted.push(gap.clone());
        }
    }
    assert_eq!(found, wanted, "newest first");
    let again = world.publish(&term, &decisions[..1]).await;
    assert_eq!(again, [Published::Deduped { cursor }]);
    let overlaps = world
        .publish(&term, &[world.gap(&job, 6, 8, "misfire")])
        .await;
    assert_eq!(overlaps, [Published::Held { cursor }]);
}

/// A run that exists is not made again: the cursor moves, and a delivery that nobody claimed goes out
/// again under a new number.
pub async fn a_run_that_exists_is_not_made_again(world: World) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let run = world.fire(&term, &job, 1, &pod).await;
    let old = world.take_one(&pod).await;
    // A job whose file comes back begins at its definition's time, and its records are still there.
    world.store.retire(&term, &job).await.expect("retire");
    world.job(&term, "j").await;
    let answers = world.publish(&term, &[world.firing(&job, 1, &other)]).await;
    assert_eq!(answers, [Published::Exists]);
    assert_eq!(world.cursor(&job).await, world.at(1));
    let stale = world.store.claim(&world.claim_of(&pod, &old)).await;
    assert_eq!(stale.expect("claim"), wasmcron_store::queue::Claimed::Stale);
    let running = world.begin(&other).await;
    assert_eq!((&running.at.run, running.attempt.task.attempt), (&run, 1));
}

/// The same for a run that executes or is over: it is left alone.
pub async fn a_run_that_is_over_is_left_alone(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    world.store.retire(&term, &job).await.expect("retire");
    world.job(&term, "j").await;
    let firing = || [world.firing(&job, 1, &pod)];
    assert_eq!(world.publish(&term, &firing()).await, [Published::Exists]);
    assert_eq!(world.state(&running.at.run).await, RunState::Running);
    let finished = world.store.finish(&running.success()).await;
    assert_eq!(finished.expect("finish"), Finished::Finished);
    world.store.retire(&term, &job).await.expect("retire");
    world.job(&term, "j").await;
    assert_eq!(world.publish(&term, &firing()).await, [Published::Exists]);
    assert!(world.take(&pod).await.is_empty());
    assert_eq!(world.state(&running.at.run).await, RunState::Succeeded);
}

/// A full call publishes; a larger one is refused before it is sent, as is a task over the limit.
pub async fn a_call_has_a_limit(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let firings =
        |n: u64| -> Vec<Decision> { (1..=n).map(|s| world.firing(&job, s, &pod)).collect() };
    let limit = u64::try_from(PUBLISH_MAX).expect("a small number");
    let over = world.store.publish(&term, &firings(limit + 1)).await;
    assert!(matches!(over, Err(StoreError::TooLarge { .. })), "{over:?}");
    let answers = world.publish(&term, &firings(limit)).await;
    assert!(answers.iter().all(|answer| *answer == Published::Published));
    let taken = world.take(&pod).await;
    let runs: Vec<RunId> = taken.into_iter().map(|taken| taken.run).collect();
    let wanted: Vec<RunId> = (1..=limit).map(|s| world.run(&job, s)).collect();
    assert_eq!(runs, wanted, "in order");

    let mut task = world.task(&job, limit + 1);
    task.params = format!("{:?}", "x".repeat(TASK_MAX_BYTES));
    let huge = Decision::Fire {
        task,
        to: pod.address.clone(),
        after: Timestamp::EPOCH,
    };
    let refused = world.store.publish(&term, &[huge]).await;
    assert!(
        matches!(refused, Err(StoreError::TooLarge { .. })),
        "{refused:?}"
    );
}
