//! Finding what stands still, and moving it.

use std::time::Duration;

use wasmcron_core::ids::{Delivery, Fence, PodRef, RunId};
use wasmcron_core::run::{Outcome, Progress, RunState};
use wasmcron_core::task::Reason;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::queue::Claimed;
use wasmcron_store::recovery::{Losing, Loss, Republished, Seen};
use wasmcron_store::runs::{Cancelled, Extension, Finished, Saved, Written};
use wasmcron_store::schedule::Submitted;

use super::Settings;
use super::world::{LONG, Running, World, keep};

impl World {
    /// Sends a run to another pod, if it is still as seen.
    pub async fn republish(
        &self,
        term: &TermRef,
        run: &RunId,
        seen: Seen,
        to: &PodRef,
    ) -> Republished {
        let republished = self
            .store
            .republish(term, run, seen, &to.address, "its|pod died", false);
        republished.await.expect("republish")
    }

    /// How often attempts of a run were lost.
    pub async fn recoveries(&self, run: &RunId) -> u32 {
        let counts = self.store.recoveries(std::slice::from_ref(run)).await;
        counts.expect("recoveries")[0]
    }

    /// Gives a run up, if it is still as seen.
    pub async fn lose(&self, term: &TermRef, run: &RunId, seen: Seen) -> Losing {
        let lost = self.store.lose(term, run, seen, &loss()).await;
        lost.expect("lose")
    }
}

fn loss() -> Loss {
    Loss {
        state: RunState::Lost,
        reason: "not|resumable".into(),
        quarantine: false,
        digest: None,
        retention: keep(),
    }
}

/// A running attempt of pod `a`, with `b` leading.
async fn scene(world: &World) -> (PodRef, TermRef, Running) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&other).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    (other, term, running)
}

/// A task that its pod did not claim goes elsewhere under a new number; the old copy is inert, also
/// for a pod that comes back to its queue after the run is over.
pub async fn c47_the_old_copy_of_a_moved_task_is_inert(world: World) {
    let store = &world.store;
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&other).await;
    let job = world.job(&term, "j").await;
    let run = world.fire(&term, &job, 1, &pod).await;
    let seen = Seen::Scheduled(store.scheduled(None).await.expect("scheduled").entries[0].delivery);
    assert_eq!(
        world.republish(&term, &run, seen, &other).await,
        Republished::Republished
    );
    assert_eq!(
        world.republish(&term, &run, seen, &other).await,
        Republished::Changed
    );
    assert_eq!(world.recoveries(&run).await, 0);
    let running = world.begin(&other).await;
    assert_eq!(
        running.attempt.task.attempt, 1,
        "the first attempt all the same"
    );
    store.finish(&running.success()).await.expect("finish");
    let back = world.pod("a").await;
    let old = world.take_one(&back).await;
    let claim = store.claim(&world.claim_of(&back, &old)).await;
    assert_eq!(claim.expect("claim"), Claimed::Stale);
    assert_eq!(world.record(&run).await.attempts.len(), 1);
    assert!(store.claiming(&back).await.expect("claiming").is_empty());
}

/// A move counts as a recovery where the caller says so.
pub async fn a_moved_delivery_counts_if_asked(world: World) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&other).await;
    let job = world.job(&term, "j").await;
    let run = world.fire(&term, &job, 1, &pod).await;
    for wanted in 1..=2 {
        let page = world.store.scheduled(None).await.expect("scheduled");
        let seen = Seen::Scheduled(page.entries[0].delivery);
        let moved = world
            .store
            .republish(&term, &run, seen, &other.address, "died", true)
            .await;
        assert_eq!(moved.expect("republish"), Republished::Republished);
        assert_eq!(world.recoveries(&run).await, wanted);
    }
}

/// A task taken and not claimed is still in the register and can be moved.
pub async fn c38_a_task_taken_and_not_claimed_is_not_lost(world: World) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&other).await;
    let job = world.job(&term, "j").await;
    let run = world.fire(&term, &job, 1, &pod).await;
    let taken = world.take_one(&pod).await;
    assert_eq!(world.state(&run).await, RunState::Scheduled);
    let seen = Seen::Scheduled(taken.delivery);
    assert_eq!(
        world.republish(&term, &run, seen, &other).await,
        Republished::Republished
    );
    let running = world.begin(&other).await;
    world
        .store
        .finish(&running.success())
        .await
        .expect("finish");
}

/// An attempt whose lock is held is left alone; without it the next attempt continues elsewhere.
pub async fn an_attempt_without_a_lock_is_followed_by_the_next(world: World) {
    let store = &world.store;
    let (other, term, running) = scene(&world).await;
    running.save(&world, 1, b"forty").await;
    let (run, seen) = (&running.at.run, Seen::Running(running.at.fence));
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Alive
    );
    world.expire(&running).await;
    let wrong = Seen::Running(Fence(running.at.fence.0 + 1));
    assert_eq!(
        world.republish(&term, run, wrong, &other).await,
        Republished::Changed
    );
    let gone = world.session("gone");
    assert_eq!(
        world.republish(&term, run, seen, &gone).await,
        Republished::NoPod
    );
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Republished
    );
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Changed
    );
    let record = world.record(run).await;
    assert_eq!((record.state, record.recoveries), (RunState::Scheduled, 1));
    assert!(
        matches!(&record.attempts[0].outcome, Some(Outcome::Lost { reason }) if reason == "its|pod died")
    );
    let view = store
        .job(&running.at.job)
        .await
        .expect("job")
        .expect("a view");
    assert_eq!(view.active.as_ref(), Some(run), "still the active run");

    let next = world.begin(&other).await;
    let task = &next.attempt.task;
    assert_eq!(
        (task.attempt, task.failures, task.reason),
        (2, 0, Reason::Resume)
    );
    let kept = next.attempt.checkpoint.as_ref().expect("a checkpoint");
    assert_eq!(kept.data, b"forty");
    next.save(&world, 2, b"fifty").await;
    assert_eq!(world.recoveries(run).await, 0, "progress forgives");
    store.finish(&next.success()).await.expect("finish");
}

/// The late reports of an attempt that was taken over are refused, and the record stays as it was.
pub async fn c44_a_pod_declared_dead_reports_too_late(world: World) {
    let store = &world.store;
    let (other, term, dead) = scene(&world).await;
    world.expire(&dead).await;
    let (run, seen) = (&dead.at.run, Seen::Running(dead.at.fence));
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Republished
    );
    for _ in 0..2 {
        assert_eq!(
            store.finish(&dead.success()).await.expect("finish"),
            Finished::Fenced
        );
        assert_eq!(
            store.finish(&dead.retry(LONG)).await.expect("finish"),
            Finished::Fenced
        );
    }
    assert_eq!(world.state(run).await, RunState::Scheduled);
    let next = world.begin(&other).await;
    assert_eq!(
        store.finish(&dead.success()).await.expect("finish"),
        Finished::Fenced
    );
    let progress = Progress {
        done: 1.0,
        total: None,
        message: String::new(),
    };
    let written = store.report_progress(&dead.at, &progress).await;
    assert_eq!(written.expect("report_progress"), Written::Fenced);
    assert_eq!(
        store.finish(&next.failure()).await.expect("finish"),
        Finished::Finished
    );
    assert_eq!(
        store.finish(&dead.success()).await.expect("finish"),
        Finished::Fenced
    );
    let record = world.record(run).await;
    assert_eq!(record.state, RunState::Failed);
    assert!(matches!(
        record.attempts[0].outcome,
        Some(Outcome::Lost { .. })
    ));
    assert!(matches!(
        record.attempts[1].outcome,
        Some(Outcome::Failed { .. })
    ));
}

/// A save by the attempt before does not take the run back, whatever its sequence.
pub async fn c91_a_late_save_does_not_go_back(world: World) {
    let store = &world.store;
    let (other, term, dead) = scene(&world).await;
    dead.save(&world, 1, b"forty").await;
    world.expire(&dead).await;
    let (run, seen) = (&dead.at.run, Seen::Running(dead.at.fence));
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Republished
    );
    let late = |seq| dead.checkpoint(seq, b"forty-one");
    let fenced = async |seq| {
        let saved = store
            .save_checkpoint(&late(seq))
            .await
            .expect("save_checkpoint");
        assert_eq!(saved, Saved::Fenced, "{seq}");
    };
    fenced(2).await;
    let next = world.begin(&other).await;
    next.save(&world, 2, b"eighty").await;
    for seq in [1, 2, 3, 9] {
        fenced(seq).await;
    }
    let kept = store
        .checkpoint(run)
        .await
        .expect("checkpoint")
        .expect("a checkpoint");
    assert_eq!((kept.seq, kept.data.as_slice()), (2, b"eighty".as_slice()));
    let attempts = std::slice::from_ref(&dead.at);
    let answers = store
        .extend(&dead.pod, attempts, LONG)
        .await
        .expect("extend");
    assert_eq!(answers, [Extension::Lost], "and its pod is told");
}

/// The end of an attempt that was taken over frees nothing of its successor's.
pub async fn c34_a_late_finish_leaves_the_successors_lock(world: World) {
    let store = &world.store;
    let (other, term, dead) = scene(&world).await;
    world.expire(&dead).await;
    let (run, seen) = (&dead.at.run, Seen::Running(dead.at.fence));
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Republished
    );
    let next = world.begin(&other).await;
    assert_eq!(
        store.finish(&dead.success()).await.expect("finish"),
        Finished::Fenced
    );
    let locks = store
        .locks(std::slice::from_ref(&dead.at.job))
        .await
        .expect("locks");
    assert_eq!(
        locks[0].as_ref().map(|lock| lock.fence),
        Some(next.at.fence)
    );
    let third = world.pod("c").await;
    world.fire(&term, &dead.at.job, 2, &third).await;
    let taken = world.take_one(&third).await;
    let claim = store.claim(&world.claim_of(&third, &taken)).await;
    assert_eq!(
        claim.expect("claim"),
        Claimed::Overlap {
            holder: run.clone()
        }
    );
}

/// A run that cannot go on is over, with its reason, if it still is as seen; a repeat is told the same.
pub async fn a_run_that_is_given_up_is_over(world: World) {
    let store = &world.store;
    let (other, term, running) = scene(&world).await;
    let (run, seen) = (&running.at.run, Seen::Running(running.at.fence));
    assert_eq!(world.lose(&term, run, seen).await, Losing::Alive);
    world.expire(&running).await;
    let wrong = Seen::Running(Fence(running.at.fence.0 + 1));
    assert_eq!(world.lose(&term, run, wrong).await, Losing::Changed);
    for _ in 0..2 {
        assert_eq!(world.lose(&term, run, seen).await, Losing::Lost);
    }
    let record = world.record(run).await;
    assert_eq!(
        (record.state, record.why.as_deref()),
        (RunState::Lost, Some("not|resumable"))
    );
    assert_eq!(
        store.finish(&running.success()).await.expect("finish"),
        Finished::Fenced
    );
    let job = &running.at.job;
    let view = store.job(job).await.expect("job").expect("a view");
    assert_eq!((view.active, view.quarantined), (None, None));

    let queued = world.fire(&term, job, 2, &other).await;
    let taken = world.take_one(&other).await;
    let wrong = Seen::Scheduled(Delivery(taken.delivery.0 + 1));
    assert_eq!(world.lose(&term, &queued, wrong).await, Losing::Changed);
    let seen = Seen::Scheduled(taken.delivery);
    assert_eq!(world.lose(&term, &queued, seen).await, Losing::Lost);
    let claim = store.claim(&world.claim_of(&other, &taken)).await;
    assert_eq!(claim.expect("claim"), Claimed::Stale);
}

/// A run whose end was asked for does not go on because its pod died before it heard of it.
pub async fn a_cancelled_run_does_not_survive_its_pod(world: World) {
    let store = &world.store;
    let (other, term, running) = scene(&world).await;
    let (run, seen) = (&running.at.run, Seen::Running(running.at.fence));
    let cancelled = store.cancel(run, "ann|e", keep()).await;
    assert_eq!(cancelled.expect("cancel"), Cancelled::Requested);
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Alive
    );
    world.expire(&running).await;
    store.leave(&other).await.expect("leave");
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Cancelled,
        "whether or not there is a pod"
    );
    let record = world.record(run).await;
    assert_eq!(record.state, RunState::Cancelled);
    assert_eq!(record.why.as_deref(), Some("cancelled by ann|e"));
    let lost = Outcome::Lost {
        reason: "its|pod died".into(),
    };
    assert_eq!(record.attempts.len(), 1);
    assert_eq!(record.attempts[0].outcome, Some(lost));
    assert_eq!(
        world.republish(&term, run, seen, &other).await,
        Republished::Changed
    );
    let view = store.job(&running.at.job).await.expect("job");
    assert_eq!(view.expect("a view").active, None);
}

/// An attempt past its end is given up as timed out.
pub async fn an_attempt_past_its_end_times_out(world: World) {
    let (_, term, running) = scene(&world).await;
    world.expire(&running).await;
    let loss = Loss {
        state: RunState::TimedOut,
        ..loss()
    };
    let seen = Seen::Running(running.at.fence);
    let lost = world.store.lose(&term, &running.at.run, seen, &loss).await;
    assert_eq!(lost.expect("lose"), Losing::Lost);
    let record = world.record(&running.at.run).await;
    assert_eq!(record.state, RunState::TimedOut);
    assert!(matches!(
        record.attempts[0].outcome,
        Some(Outcome::TimedOut { .. })
    ));
}

/// Recoveries add up within their window only.
pub async fn recoveries_add_up_within_a_window(world: World) {
    let window = Duration::from_millis(40);
    let short = world
        .store_with(Settings {
            recovery_window: window,
            ..Settings::default()
        })
        .await;
    let (other, term, first) = scene(&world).await;
    let run = &first.at.run;
    let mut running = first.clone();
    for wanted in 1..=2 {
        world.expire(&running).await;
        let seen = Seen::Running(running.at.fence);
        assert_eq!(
            world.republish(&term, run, seen, &other).await,
            Republished::Republished
        );
        assert_eq!(world.recoveries(run).await, wanted);
        running = world.begin(&other).await;
    }
    world.pass(window * 2).await;
    let counts = short
        .recoveries(std::slice::from_ref(run))
        .await
        .expect("recoveries");
    assert_eq!(counts, [0], "long ago");
    world.expire(&running).await;
    let seen = Seen::Running(running.at.fence);
    let moved = short
        .republish(&term, run, seen, &other.address, "died", false)
        .await;
    assert_eq!(moved.expect("republish"), Republished::Republished);
    assert_eq!(world.recoveries(run).await, 1, "counted from one again");
}

/// A run whose pod died does not block its job: it is seen for what it is, and a request by hand is
/// taken and has its turn.
pub async fn c92_a_dead_run_does_not_block_its_job(world: World) {
    let store = &world.store;
    let (other, term, dead) = scene(&world).await;
    world.expire(&dead).await;
    let manual = world.manual(&dead.at.job);
    let asked = manual.task.run.clone();
    let answer = store.submit(&manual).await.expect("submit");
    assert_eq!(answer, Submitted::Accepted { run: asked.clone() });
    let seen = Seen::Running(dead.at.fence);
    assert_eq!(world.lose(&term, &dead.at.run, seen).await, Losing::Lost);
    assert_eq!(world.state(&dead.at.run).await, RunState::Lost);
    world.promoted(&term, &asked, &other).await;
    let running = world.begin(&other).await;
    store.finish(&running.success()).await.expect("finish");
}

/// Both registers are read in pages that miss nothing.
pub async fn registers_are_read_whole(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let mut wanted = Vec::new();
    for batch in 0..4 {
        let seconds = (batch * 100 + 1)..=(batch * 100 + 100);
        let firings: Vec<_> = seconds
            .map(|second| world.firing(&job, second, &pod))
            .collect();
        world.publish(&term, &firings).await;
    }
    for second in 1..=400 {
        wanted.push(world.run(&job, second));
    }
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = world.store.scheduled(cursor).await.expect("scheduled");
        found.extend(page.entries.into_iter().map(|entry| entry.task.run));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    found.sort();
    found.dedup();
    wanted.sort();
    assert_eq!(found, wanted);
}
