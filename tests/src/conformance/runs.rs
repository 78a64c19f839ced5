//! What an executing attempt keeps, and how it ends.

use std::time::Duration;

use wasmcron_core::run::{Outcome, RunState};
use wasmcron_core::task::Reason;
use wasmcron_store::StoreError;
use wasmcron_store::queue::Claimed;
use wasmcron_store::runs::{AttemptRef, Cancelled, EXTEND_MAX, Extension, Finished, Retention};
use wasmcron_store::schedule::Submission;

use super::Damage;
use super::world::{LONG, World, keep};

/// One call extends all attempts of a pod, each with its own answer, in order.
pub async fn a_pod_extends_all_its_attempts(world: World) {
    let store = &world.store;
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    let mut running = Vec::new();
    for name in ["j", "k", "l"] {
        let job = world.job(&term, name).await;
        running.push(world.running(&term, &job, 1, &pod).await);
    }
    let job = world.job(&term, "m").await;
    let theirs = world.running(&term, &job, 1, &other).await;
    let short = Duration::from_secs(60);
    let mut all: Vec<AttemptRef> = running.iter().map(|one| one.at.clone()).collect();
    store.extend(&pod, &all, short).await.expect("extend");
    world.damage(Damage::LockLost(all[1].job.clone())).await;
    store
        .cancel(&all[2].run, "ann|e", keep())
        .await
        .expect("cancel");
    all.push(theirs.at.clone());
    all.push(AttemptRef {
        run: world.run(&job, 9),
        ..theirs.at.clone()
    });
    let answers = store.extend(&pod, &all, LONG).await.expect("extend");
    let cancel = Extension::Cancel { by: "ann|e".into() };
    let lost = || Extension::Lost;
    assert_eq!(
        answers,
        [Extension::Extended, lost(), cancel, lost(), lost()]
    );
    let locks = store
        .locks(&[all[0].job.clone(), all[2].job.clone()])
        .await
        .expect("locks");
    for lock in locks {
        assert!(lock.is_some_and(|lock| lock.expires_in > LONG / 2));
    }
    assert_eq!(store.extend(&pod, &[], LONG).await.expect("extend"), []);
    let many = vec![all[0].clone(); EXTEND_MAX + 1];
    let refused = store.extend(&pod, &many, LONG).await;
    assert!(
        matches!(refused, Err(StoreError::TooLarge { .. })),
        "{refused:?}"
    );
}

/// A lock that was extended for longer than it was taken for lasts that long.
pub async fn a_longer_extension_is_not_cut(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world.fire(&term, &job, 1, &pod).await;
    let taken = world.take_one(&pod).await;
    let mut claim = world.claim_of(&pod, &taken);
    claim.lock_ttl = LONG / 10;
    let running = world.claimed(claim).await;
    let attempts = std::slice::from_ref(&running.at);
    let extended = store.extend(&pod, attempts, LONG).await;
    assert_eq!(extended.expect("extend"), [Extension::Extended]);
    for _ in 0..2 {
        let locks = store.locks(std::slice::from_ref(&job)).await;
        let lock = locks.expect("locks").remove(0).expect("a lock");
        assert!(lock.expires_in > LONG / 2, "{:?}", lock.expires_in);
    }
}

/// Past its end an attempt is given up, whatever its pod says.
pub async fn an_attempt_past_its_end_is_not_extended(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world.fire(&term, &job, 1, &pod).await;
    let mut claim = world.claim_of(&pod, &world.take_one(&pod).await);
    claim.ends_in = Duration::from_millis(20);
    let running = world.claimed(claim).await;
    let attempts = std::slice::from_ref(&running.at);
    world
        .until("the end of the attempt", async || {
            let answers = world
                .store
                .extend(&pod, attempts, LONG)
                .await
                .expect("extend");
            (answers == [Extension::Expired]).then_some(())
        })
        .await;
}

/// A process whose address another session has loses all its locks.
pub async fn a_superseded_session_extends_nothing(world: World) {
    let leader = world.pod("l").await;
    let old = world.pod("a").await;
    let term = world.lead(&leader).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &old).await;
    world.pod("a").await;
    let attempts = std::slice::from_ref(&running.at);
    let answers = world.store.extend(&old, attempts, LONG).await;
    assert_eq!(answers.expect("extend"), [Extension::Lost]);
}

/// The answer to a finish was lost: asking again says that it was done, and nothing happens twice.
pub async fn c41_a_repeated_finish_is_known(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    let finish = running.success();
    assert_eq!(
        store.finish(&finish).await.expect("finish"),
        Finished::Finished
    );
    let events = store
        .execution_log(None, 100)
        .await
        .expect("execution_log")
        .len();
    for _ in 0..2 {
        assert_eq!(
            store.finish(&finish).await.expect("finish"),
            Finished::AlreadyFinished
        );
    }
    let view = store.job(&job).await.expect("job").expect("a view");
    assert_eq!(view.successes.count, 1);
    let now = store
        .execution_log(None, 100)
        .await
        .expect("execution_log")
        .len();
    assert_eq!(now, events, "said once");
    // Another run of the job neither forgets nor takes over the answer.
    world.running(&term, &job, 2, &pod).await;
    assert_eq!(
        store.finish(&finish).await.expect("finish"),
        Finished::AlreadyFinished
    );
}

/// A failed attempt with others to come waits for its time, and goes on as the next attempt.
pub async fn a_failed_attempt_is_followed_by_the_next(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let first = world.running(&term, &job, 1, &pod).await;
    let retry = first.retry(Duration::ZERO);
    assert_eq!(
        store.finish(&retry).await.expect("finish"),
        Finished::Finished
    );
    assert_eq!(
        store.finish(&retry).await.expect("finish"),
        Finished::AlreadyFinished
    );
    let record = world.record(&first.at.run).await;
    assert_eq!(
        (record.state, record.why.as_deref()),
        (RunState::Delayed, Some("it failed|once"))
    );
    assert_eq!(
        store
            .locks(std::slice::from_ref(&job))
            .await
            .expect("locks"),
        [None]
    );
    world.promoted(&term, &first.at.run, &pod).await;
    let second = world.begin(&pod).await;
    let task = &second.attempt.task;
    assert_eq!(
        (task.attempt, task.failures, task.reason),
        (2, 1, Reason::Retry)
    );
    assert!(second.at.fence > first.at.fence);
    assert_eq!(
        store.finish(&retry).await.expect("finish"),
        Finished::AlreadyFinished
    );
    assert_eq!(world.state(&first.at.run).await, RunState::Running);

    store.finish(&second.yields(4)).await.expect("finish");
    world.promoted(&term, &first.at.run, &pod).await;
    let third = world.begin(&pod).await;
    let task = &third.attempt.task;
    assert_eq!((task.attempt, task.failures, task.idle_yields), (3, 1, 4));
    store.finish(&third.failure()).await.expect("finish");
    let record = world.record(&first.at.run).await;
    assert_eq!((record.state, record.attempts.len()), (RunState::Failed, 3));
    assert_eq!(record.why.as_deref(), Some("bad|luck"));
    assert!(matches!(record.attempts[1].outcome, Some(Outcome::Yielded)));
    let reasons: Vec<Reason> = record
        .attempts
        .iter()
        .map(|attempt| attempt.reason)
        .collect();
    assert_eq!(reasons, [Reason::Scheduled, Reason::Retry, Reason::Resume]);
}

/// Until somebody took the run over its outcome counts, although its lock ran out.
pub async fn an_outcome_counts_without_its_lock(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    world.expire(&running).await;
    let finished = world.store.finish(&running.success()).await;
    assert_eq!(finished.expect("finish"), Finished::Finished);
    assert_eq!(world.state(&running.at.run).await, RunState::Succeeded);
}

/// Successes are counted and their length averaged.
pub async fn successes_are_counted(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    for seconds in 1..=3 {
        let running = world.running(&term, &job, seconds, &pod).await;
        world.pass(Duration::from_millis(10)).await;
        let finish = if seconds == 2 {
            running.failure()
        } else {
            running.success()
        };
        world.store.finish(&finish).await.expect("finish");
    }
    let view = world.store.job(&job).await.expect("job").expect("a view");
    assert_eq!(view.successes.count, 2);
    assert!(
        view.successes.average >= Duration::from_millis(9),
        "{:?}",
        view.successes
    );
    let next = world.running(&term, &job, 4, &pod).await;
    assert_eq!(next.attempt.previous_success, Some(world.at(3)));
}

/// A run that does not execute is cancelled at once, wherever it is; a repeat is told the same.
pub async fn a_run_that_does_not_execute_is_cancelled_at_once(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let queued = world.fire(&term, &job, 1, &pod).await;
    let delayed = world.submitted(&world.manual(&job)).await;
    for run in [&queued, &delayed] {
        for _ in 0..2 {
            let cancelled = store.cancel(run, "ann", keep()).await.expect("cancel");
            assert_eq!(cancelled, Cancelled::Ended, "{run}");
        }
        let other = store.cancel(run, "bob", keep()).await.expect("cancel");
        assert_eq!(other, Cancelled::AlreadyEnded);
        let record = world.record(run).await;
        assert_eq!(record.state, RunState::Cancelled);
        assert!(record.why.is_some_and(|why| why.contains("ann")));
    }
    let taken = world.take_one(&pod).await;
    let claim = store.claim(&world.claim_of(&pod, &taken)).await;
    assert_eq!(
        claim.expect("claim"),
        Claimed::Stale,
        "the copy in the queue is inert"
    );
    world.due_is(&[]).await;
    let unknown = store.cancel(&world.run(&job, 9), "ann", keep()).await;
    assert_eq!(unknown.expect("cancel"), Cancelled::Unknown);
}

/// A run that executes is asked to end, and ends by its own finish.
pub async fn a_run_that_executes_is_asked_to_end(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    for by in ["ann", "bob"] {
        let asked = store
            .cancel(&running.at.run, by, keep())
            .await
            .expect("cancel");
        assert_eq!(asked, Cancelled::Requested);
    }
    assert_eq!(world.state(&running.at.run).await, RunState::Running);
    let attempts = std::slice::from_ref(&running.at);
    for _ in 0..2 {
        let answers = store.extend(&pod, attempts, LONG).await.expect("extend");
        assert_eq!(
            answers,
            [Extension::Cancel { by: "ann".into() }],
            "the first who asked"
        );
    }
    let page = store.running(None).await.expect("running");
    assert_eq!(page.entries[0].cancel.as_deref(), Some("ann"));
    let mut finish = running.success();
    assert_eq!(
        store.finish(&finish).await.expect("finish"),
        Finished::Finished
    );
    let late = store
        .cancel(&running.at.run, "ann", keep())
        .await
        .expect("cancel");
    assert_eq!(late, Cancelled::AlreadyEnded);
    finish.me = pod;
    assert_eq!(
        store.finish(&finish).await.expect("finish"),
        Finished::AlreadyFinished
    );
}

/// Records of ended runs go after their time, and a job's list keeps so many.
pub async fn records_are_kept_as_long_as_asked(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    for seconds in 1..=3 {
        let running = world.running(&term, &job, seconds, &pod).await;
        let mut finish = running.success();
        finish.retention = Retention {
            age: Duration::from_millis(20),
            runs: 2,
        };
        store.finish(&finish).await.expect("finish");
    }
    let running = world.running(&term, &job, 4, &pod).await;
    world
        .until("the records to go", async || {
            let runs = store.runs(&job, 10).await.expect("runs");
            let left: Vec<_> = runs.into_iter().map(|record| record.run).collect();
            (left == [running.at.run.clone()]).then_some(())
        })
        .await;
    assert_eq!(store.run(&world.run(&job, 3)).await.expect("run"), None);
    let mut finish = running.success();
    finish.retention.runs = 1;
    store.finish(&finish).await.expect("finish");
    assert_eq!(store.runs(&job, 10).await.expect("runs").len(), 1);
}

/// When a run began is its first claim, and its duration counts from there.
pub async fn a_run_lasts_from_its_first_claim(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let run = world.run(&job, 1);
    let began = async || {
        let began = store.began(std::slice::from_ref(&run)).await;
        began.expect("began")
    };
    assert_eq!(store.began(&[]).await.expect("began"), []);
    world.fire(&term, &job, 1, &pod).await;
    assert_eq!(began().await, [None]);
    let first = world.begin(&pod).await;
    assert_eq!(first.attempt.began_at, first.attempt.claimed_at);
    assert_eq!(began().await, [Some(first.attempt.began_at)]);
    let pause = Duration::from_millis(50);
    world.pass(pause).await;
    store.finish(&first.yields(0)).await.expect("finish");
    world.promoted(&term, &run, &pod).await;
    let second = world.begin(&pod).await;
    assert_eq!(second.attempt.began_at, first.attempt.began_at);
    assert!(second.attempt.claimed_at > first.attempt.claimed_at);
    let repeated = world.claimed(second.claim.clone()).await;
    assert_eq!(repeated.attempt.began_at, first.attempt.began_at);
    store.finish(&second.success()).await.expect("finish");
    let view = store.job(&job).await.expect("job").expect("a view");
    assert!(view.successes.average >= pause, "{:?}", view.successes);
    assert_eq!(began().await, [Some(first.attempt.began_at)]);
}

/// A run of a nominal time whose record is past can be asked for anew, and stands once among its job's.
pub async fn a_run_made_anew_is_listed_once(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    let mut finish = running.success();
    finish.retention.age = Duration::from_millis(1);
    store.finish(&finish).await.expect("finish");
    let run = &running.at.run;
    world
        .until("the end of the record", async || {
            store.run(run).await.expect("run").is_none().then_some(())
        })
        .await;
    let mut task = world.task(&job, 1);
    task.reason = Reason::Backfill;
    let anew = Submission {
        task,
        idempotency: None,
    };
    assert_eq!(&world.submitted(&anew).await, run);
    let runs = store.runs(&job, 10).await.expect("runs");
    assert_eq!(runs.len(), 1, "{runs:?}");
}
