//! States that no verb makes and that crashes, failovers and hands leave behind (C39). Each leads on:
//! the run executes, or is given up where people see it; and nothing broken stops the others.

use std::time::Duration;

use wasmcron_core::ids::{JobName, PodRef, RunId};
use wasmcron_core::run::RunState;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::queue::Claimed;
use wasmcron_store::recovery::{Losing, Register, Republished, Seen};
use wasmcron_store::runs::{Cancelled, Extension, Finished};
use wasmcron_store::schedule::Promoted;

use super::Damage;
use super::world::{LONG, World, keep};

struct Scene {
    pod: PodRef,
    term: TermRef,
    job: JobName,
}

impl Scene {
    async fn new(world: &World) -> Scene {
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        Scene { pod, term, job }
    }

    /// The next firing of the job executes and ends.
    async fn goes_on(&self, world: &World, seconds: u64) {
        let running = world
            .running(&self.term, &self.job, seconds, &self.pod)
            .await;
        let finished = world.store.finish(&running.success()).await;
        assert_eq!(finished.expect("finish"), Finished::Finished);
    }

    async fn bury(&self, world: &World, register: Register, run: &RunId) -> bool {
        let buried = world
            .store
            .bury(&self.term, register, &run.into(), keep())
            .await;
        buried.expect("bury")
    }
}

async fn moved_on(world: &World, scene: &Scene, run: &RunId, seen: Seen) {
    let moved = world.republish(&scene.term, run, seen, &scene.pod).await;
    assert_eq!(moved, Republished::Republished);
    let running = world.begin(&scene.pod).await;
    world
        .store
        .finish(&running.success())
        .await
        .expect("finish");
    assert_eq!(world.state(run).await, RunState::Succeeded);
}

/// In the register and in no queue.
pub async fn c39_scheduled_and_in_no_queue(world: World) {
    let scene = Scene::new(&world).await;
    let run = world.fire(&scene.term, &scene.job, 1, &scene.pod).await;
    world.damage(Damage::QueueLost(scene.pod.clone())).await;
    assert!(world.take(&scene.pod).await.is_empty());
    let page = world.store.scheduled(None).await.expect("scheduled");
    let seen = Seen::Scheduled(page.entries[0].delivery);
    moved_on(&world, &scene, &run, seen).await;
}

/// In a queue and in no register.
pub async fn c39_queued_and_in_no_register(world: World) {
    let scene = Scene::new(&world).await;
    let run = world.fire(&scene.term, &scene.job, 1, &scene.pod).await;
    world
        .damage(Damage::EntryLost(Register::Scheduled, run.clone()))
        .await;
    let taken = world.take_one(&scene.pod).await;
    let claim = world.store.claim(&world.claim_of(&scene.pod, &taken)).await;
    assert_eq!(claim.expect("claim"), Claimed::Stale);
    let record = world.record(&run).await;
    assert_eq!(
        record.state,
        RunState::Lost,
        "and not said to wait for ever"
    );
    assert!(record.why.is_some());
    let cancelled = world.store.cancel(&run, "ann", keep()).await;
    assert_eq!(cancelled.expect("cancel"), Cancelled::Ended);
    scene.goes_on(&world, 2).await;
}

/// Executing, without a lock.
pub async fn c39_running_without_a_lock(world: World) {
    let scene = Scene::new(&world).await;
    let running = world.running(&scene.term, &scene.job, 1, &scene.pod).await;
    world.damage(Damage::LockLost(scene.job.clone())).await;
    let seen = Seen::Running(running.at.fence);
    moved_on(&world, &scene, &running.at.run, seen).await;
}

/// Executing and in a queue at once: the attempt is spared, the other entry goes.
pub async fn c39_running_and_scheduled_at_once(world: World) {
    let scene = Scene::new(&world).await;
    let run = world.fire(&scene.term, &scene.job, 1, &scene.pod).await;
    let stray = Damage::Restore(Register::Scheduled, run.clone());
    world
        .damage(Damage::Remember(Register::Scheduled, run.clone()))
        .await;
    let running = world.begin(&scene.pod).await;
    let seen = Seen::Scheduled(running.claim.taken.delivery);
    let scheduled = async || {
        let page = world.store.scheduled(None).await.expect("scheduled");
        page.entries.len()
    };

    world.damage(stray.clone()).await;
    let copy = world.claim_of(&scene.pod, &running.claim.taken);
    assert_eq!(
        world.store.claim(&copy).await.expect("claim"),
        Claimed::Stale
    );
    let moved = world.republish(&scene.term, &run, seen, &scene.pod).await;
    assert_eq!((moved, scheduled().await), (Republished::Changed, 0));
    world.damage(stray).await;
    assert_eq!(world.lose(&scene.term, &run, seen).await, Losing::Changed);
    assert_eq!(scheduled().await, 0);

    let attempts = std::slice::from_ref(&running.at);
    let extended = world.store.extend(&scene.pod, attempts, LONG).await;
    assert_eq!(extended.expect("extend"), [Extension::Extended]);
    let finished = world.store.finish(&running.success()).await;
    assert_eq!(finished.expect("finish"), Finished::Finished);
    scene.goes_on(&world, 2).await;
}

/// A lock, and nothing that executes: it protects nobody, and its pod is told.
pub async fn c39_a_lock_and_nothing_that_runs(world: World) {
    let scene = Scene::new(&world).await;
    let running = world.running(&scene.term, &scene.job, 1, &scene.pod).await;
    world
        .damage(Damage::EntryLost(Register::Running, running.at.run.clone()))
        .await;
    let attempts = std::slice::from_ref(&running.at);
    let extended = world.store.extend(&scene.pod, attempts, LONG).await;
    assert_eq!(extended.expect("extend"), [Extension::Lost]);
    let finished = world.store.finish(&running.success()).await;
    assert_eq!(finished.expect("finish"), Finished::Fenced);
    assert_eq!(world.state(&running.at.run).await, RunState::Lost);
    scene.goes_on(&world, 2).await;
}

/// An entry that ends in the middle: named, buried, its run lost, and the others served.
pub async fn c39_a_running_entry_cut_short(world: World) {
    let scene = Scene::new(&world).await;
    let other = world.job(&scene.term, "k").await;
    let good = world.running(&scene.term, &other, 1, &scene.pod).await;
    let broken = world.running(&scene.term, &scene.job, 1, &scene.pod).await;
    let run = &broken.at.run;
    world
        .damage(Damage::EntryCut(Register::Running, run.clone()))
        .await;
    let page = world.store.running(None).await.expect("running");
    assert_eq!(page.corrupt, [run.into()]);
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].fence, good.at.fence);
    assert!(scene.bury(&world, Register::Running, run).await);
    assert!(!scene.bury(&world, Register::Running, run).await, "once");
    let record = world.record(run).await;
    assert_eq!(record.state, RunState::Lost);
    let jobs = std::slice::from_ref(&scene.job);
    assert_eq!(world.store.locks(jobs).await.expect("locks"), [None]);
    assert_eq!(world.store.counts().await.expect("counts").dead_letters, 1);
    let finished = world.store.finish(&broken.success()).await;
    assert_eq!(finished.expect("finish"), Finished::Fenced);
    scene.goes_on(&world, 2).await;
}

/// The same in the register of queues.
pub async fn c39_a_scheduled_entry_cut_short(world: World) {
    let scene = Scene::new(&world).await;
    let run = world.fire(&scene.term, &scene.job, 1, &scene.pod).await;
    world
        .damage(Damage::EntryCut(Register::Scheduled, run.clone()))
        .await;
    let page = world.store.scheduled(None).await.expect("scheduled");
    assert_eq!((page.corrupt, page.entries), (vec![(&run).into()], vec![]));
    let taken = world.take_one(&scene.pod).await;
    let claim = world.store.claim(&world.claim_of(&scene.pod, &taken)).await;
    assert_eq!(claim.expect("claim"), Claimed::Stale);
    assert!(scene.bury(&world, Register::Scheduled, &run).await);
    assert_eq!(world.state(&run).await, RunState::Lost);
    scene.goes_on(&world, 2).await;
}

/// The same among the delayed runs, in front of a good one.
pub async fn c39_a_delayed_entry_cut_short(world: World) {
    let scene = Scene::new(&world).await;
    let broken = world.submitted(&world.manual(&scene.job)).await;
    world.pass(Duration::from_millis(2)).await;
    let good = world.submitted(&world.manual(&scene.job)).await;
    world
        .damage(Damage::EntryCut(Register::Delayed, broken.clone()))
        .await;
    let due = world.due(10).await;
    assert_eq!(due.corrupt, [(&broken).into()]);
    assert_eq!(due.entries.len(), 1);
    assert!(scene.bury(&world, Register::Delayed, &broken).await);
    assert_eq!(world.state(&broken).await, RunState::Lost);
    world.due_is(&[&good]).await;
    assert!(world.due(10).await.corrupt.is_empty());
}

/// A due time without an entry: taken away, and no run dies of it that is somewhere else.
pub async fn c39_a_due_time_without_an_entry(world: World) {
    let scene = Scene::new(&world).await;
    let run = world.submitted(&world.manual(&scene.job)).await;
    world
        .damage(Damage::EntryLost(Register::Delayed, run.clone()))
        .await;
    assert_eq!(world.due(10).await.corrupt, [(&run).into()]);
    assert!(scene.bury(&world, Register::Delayed, &run).await);
    assert_eq!(world.state(&run).await, RunState::Lost);
    let due = world.due(10).await;
    assert!(due.corrupt.is_empty() && due.entries.is_empty());
}

/// Delayed and executing at once: however it is promoted, the run executes once.
pub async fn c39_delayed_and_running_at_once(world: World) {
    let scene = Scene::new(&world).await;
    let run = world.submitted(&world.manual(&scene.job)).await;
    world
        .damage(Damage::Remember(Register::Delayed, run.clone()))
        .await;
    world.promoted(&scene.term, &run, &scene.pod).await;
    let running = world.begin(&scene.pod).await;
    for ended in [false, true] {
        world
            .damage(Damage::Restore(Register::Delayed, run.clone()))
            .await;
        world.promote(&scene.term, &[(&run, &scene.pod)]).await;
        for taken in world.take(&scene.pod).await {
            let claim = world.store.claim(&world.claim_of(&scene.pod, &taken)).await;
            assert_eq!(claim.expect("claim"), Claimed::Stale, "ended: {ended}");
            let seen = Seen::Scheduled(taken.delivery);
            let moved = world.republish(&scene.term, &run, seen, &scene.pod).await;
            assert_eq!(moved, Republished::Changed);
        }
        assert_eq!(
            world
                .store
                .scheduled(None)
                .await
                .expect("scheduled")
                .entries,
            []
        );
        if !ended {
            assert_eq!(world.state(&run).await, RunState::Running);
            world
                .store
                .finish(&running.success())
                .await
                .expect("finish");
        }
    }
    assert_eq!(world.record(&run).await.attempts.len(), 1);
    scene.goes_on(&world, 1).await;
}

/// Executing for a job that nobody knows any more, on a pod that left.
pub async fn c39_running_for_a_job_and_a_pod_that_are_gone(world: World) {
    let scene = Scene::new(&world).await;
    let gone = world.pod("gone").await;
    let running = world.running(&scene.term, &scene.job, 1, &gone).await;
    world
        .store
        .retire(&scene.term, &scene.job)
        .await
        .expect("retire");
    world.expire(&running).await;
    world.store.leave(&gone).await.expect("leave");
    let seen = Seen::Running(running.at.fence);
    assert_eq!(
        world.lose(&scene.term, &running.at.run, seen).await,
        Losing::Lost
    );
    assert_eq!(world.store.counts().await.expect("counts").running, 0);
}

/// The run that holds its job's place was lost with its entry: it holds nobody up, and a run parked
/// behind it goes on with the next end.
pub async fn c39_an_active_run_without_an_entry_holds_nobody_up(world: World) {
    let scene = Scene::new(&world).await;
    let holder = world.running(&scene.term, &scene.job, 1, &scene.pod).await;
    world.fire(&scene.term, &scene.job, 2, &scene.pod).await;
    let parked = world.take_one(&scene.pod).await;
    world
        .store
        .park(&scene.pod, &parked, 1)
        .await
        .expect("park");
    world
        .store
        .finish(&holder.retry(Duration::ZERO))
        .await
        .expect("finish");
    world
        .damage(Damage::EntryLost(Register::Delayed, holder.at.run.clone()))
        .await;
    scene.bury(&world, Register::Delayed, &holder.at.run).await;
    world.due_is(&[&parked.run]).await;

    let holder = world.running(&scene.term, &scene.job, 3, &scene.pod).await;
    world
        .damage(Damage::EntryLost(Register::Running, holder.at.run))
        .await;
    let answers = world
        .promote(&scene.term, &[(&parked.run, &scene.pod)])
        .await;
    assert_eq!(answers, [Promoted::Promoted]);
    let running = world.begin(&scene.pod).await;
    world
        .store
        .finish(&running.success())
        .await
        .expect("finish");
}

/// The place of a lost run goes with the next run that ends, also one that never began.
pub async fn c39_the_place_of_a_lost_run_is_cleared(world: World) {
    let scene = Scene::new(&world).await;
    let holder = world.running(&scene.term, &scene.job, 1, &scene.pod).await;
    world.fire(&scene.term, &scene.job, 2, &scene.pod).await;
    let parked = world.take_one(&scene.pod).await;
    world
        .store
        .park(&scene.pod, &parked, 1)
        .await
        .expect("park");
    world
        .damage(Damage::EntryLost(Register::Running, holder.at.run.clone()))
        .await;
    let next = world.fire(&scene.term, &scene.job, 3, &scene.pod).await;
    world
        .store
        .cancel(&next, "ann", keep())
        .await
        .expect("cancel");
    world.due_is(&[&parked.run]).await;
    let view = world
        .store
        .job(&scene.job)
        .await
        .expect("job")
        .expect("a view");
    assert_eq!(view.active, None);
}

/// Two runs of a job execute, since a failover forgot the place of the first: who has no lock neither
/// takes the other's by repeating its claim nor frees it by ending.
pub async fn c39_a_lost_place_gives_no_right_to_anothers_lock(world: World) {
    let scene = Scene::new(&world).await;
    let first = world.running(&scene.term, &scene.job, 1, &scene.pod).await;
    world.expire(&first).await;
    world.damage(Damage::PlaceLost(scene.job.clone())).await;
    let second = world.running(&scene.term, &scene.job, 2, &scene.pod).await;
    let holder = async || {
        let jobs = std::slice::from_ref(&scene.job);
        let locks = world.store.locks(jobs).await.expect("locks");
        locks[0].as_ref().map(|lock| lock.fence)
    };
    let repeated = world.store.claim(&first.claim).await;
    assert_eq!(repeated.expect("claim"), Claimed::Stale);
    assert_eq!(holder().await, Some(second.at.fence));
    let finished = world.store.finish(&first.success()).await;
    assert_eq!(finished.expect("finish"), Finished::Finished);
    assert_eq!(holder().await, Some(second.at.fence));
    let view = world
        .store
        .job(&scene.job)
        .await
        .expect("job")
        .expect("a view");
    assert_eq!(view.active, Some(second.at.run));
}

/// What comes back after its record is past shows nothing of the run that it was.
pub async fn what_comes_back_after_its_record_has_no_attempts(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    let run = &running.at.run;
    store.finish(&running.retry(LONG)).await.expect("finish");
    let remember = Damage::Remember(Register::Delayed, run.clone());
    world.damage(remember).await;
    let mut retention = keep();
    retention.age = Duration::from_millis(1);
    let cancelled = store.cancel(run, "ann", retention).await;
    assert_eq!(cancelled.expect("cancel"), Cancelled::Ended);
    world
        .until("the end of the record", async || {
            store.run(run).await.expect("run").is_none().then_some(())
        })
        .await;
    let restore = Damage::Restore(Register::Delayed, run.clone());
    world.damage(restore).await;
    let record = world.record(run).await;
    assert_eq!((record.state, record.attempts), (RunState::Delayed, vec![]));
}
