//! Runs that wait for another run of their job to end.

use std::time::Duration;

use wasmcron_core::ids::{JobName, PodRef, RunId};
use wasmcron_core::run::RunState;
use wasmcron_core::task::Reason;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::queue::{Claimed, Hold, Moved, Parked, Taken};
use wasmcron_store::recovery::{Losing, Loss, Seen};
use wasmcron_store::runs::Cancelled;

use super::world::{Running, World, keep};

/// A job of which one run executes and others are parked.
struct Crowd {
    pod: PodRef,
    term: TermRef,
    job: JobName,
    holder: Running,
}

impl Crowd {
    async fn new(world: &World) -> Crowd {
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        let holder = world.running(&term, &job, 1, &pod).await;
        Crowd {
            pod,
            term,
            job,
            holder,
        }
    }

    /// Fires a time that meets the holder.
    async fn overlapping(&self, world: &World, seconds: u64) -> Taken {
        world.fire(&self.term, &self.job, seconds, &self.pod).await;
        let taken = world.take_one(&self.pod).await;
        let answer = world.store.claim(&world.claim_of(&self.pod, &taken)).await;
        assert!(matches!(answer, Ok(Claimed::Overlap { .. })), "{answer:?}");
        taken
    }

    async fn park(&self, world: &World, taken: &Taken, max: u32) -> Parked {
        world.store.park(&self.pod, taken, max).await.expect("park")
    }

    /// Parks the firing of a time.
    async fn parked(&self, world: &World, seconds: u64) -> RunId {
        let taken = self.overlapping(world, seconds).await;
        assert_eq!(self.park(world, &taken, 99).await, Parked::Parked);
        taken.run
    }
}

/// A parked run waits without a time; a repeat is told the same.
pub async fn a_parked_run_waits_without_a_time(world: World) {
    let crowd = Crowd::new(&world).await;
    let taken = crowd.overlapping(&world, 2).await;
    for _ in 0..2 {
        assert_eq!(crowd.park(&world, &taken, 1).await, Parked::Parked);
    }
    assert_eq!(world.state(&taken.run).await, RunState::Parked);
    let entry = world
        .store
        .delayed(&taken.run)
        .await
        .expect("delayed")
        .expect("it waits");
    assert_eq!(entry.due, None);
    assert!(
        entry.why.contains(crowd.holder.at.run.as_str()),
        "{}",
        entry.why
    );
    assert!(
        world
            .store
            .claiming(&crowd.pod)
            .await
            .expect("claiming")
            .is_empty()
    );
    world.due_is(&[]).await;
}

/// As many firings wait as may; runs that may not be skipped wait beyond that.
pub async fn only_so_many_firings_wait(world: World) {
    let crowd = Crowd::new(&world).await;
    let first = crowd.overlapping(&world, 2).await;
    let second = crowd.overlapping(&world, 3).await;
    assert_eq!(crowd.park(&world, &first, 1).await, Parked::Parked);
    assert_eq!(crowd.park(&world, &second, 1).await, Parked::Full);
    assert_eq!(
        world.state(&second.run).await,
        RunState::Scheduled,
        "nothing changed"
    );
    let skipped = world.store.skip(&crowd.pod, &second, "full").await;
    assert_eq!(skipped.expect("skip"), Moved::Moved);
    for _ in 0..2 {
        let run = world.submitted(&world.manual(&crowd.job)).await;
        world.promoted(&crowd.term, &run, &crowd.pod).await;
        let taken = world.take_one(&crowd.pod).await;
        assert_eq!(crowd.park(&world, &taken, 1).await, Parked::Parked);
    }
    let none = crowd.overlapping(&world, 4).await;
    assert_eq!(crowd.park(&world, &none, 0).await, Parked::Full);
}

/// The end of the active run makes the first of the parked ones due, by nominal time.
pub async fn the_first_parked_run_goes_on(world: World) {
    let crowd = Crowd::new(&world).await;
    let later = crowd.overlapping(&world, 2).await;
    let last = crowd.overlapping(&world, 3).await;
    assert_eq!(crowd.park(&world, &last, 9).await, Parked::Parked);
    assert_eq!(crowd.park(&world, &later, 9).await, Parked::Parked);
    world
        .store
        .finish(&crowd.holder.success())
        .await
        .expect("finish");
    world.due_is(&[&later.run]).await;
    assert_eq!(world.state(&last.run).await, RunState::Parked);
    world.promoted(&crowd.term, &later.run, &crowd.pod).await;
    let running = world.begin(&crowd.pod).await;
    assert_eq!(
        (&running.at.run, running.attempt.task.attempt),
        (&later.run, 1)
    );
    world.due_is(&[]).await;
    world
        .store
        .finish(&running.failure())
        .await
        .expect("finish");
    world.due_is(&[&last.run]).await;
}

/// A back-off, a yield and a recovery are no end: nothing is released.
pub async fn a_pause_of_the_active_run_releases_nothing(world: World) {
    let crowd = Crowd::new(&world).await;
    let waits = crowd.parked(&world, 2).await;
    let first = &crowd.holder;
    world
        .store
        .finish(&first.retry(Duration::ZERO))
        .await
        .expect("finish");
    world.due_is(&[&first.at.run]).await;
    world.promoted(&crowd.term, &first.at.run, &crowd.pod).await;
    let second = world.begin(&crowd.pod).await;
    world.store.finish(&second.yields(0)).await.expect("finish");
    world.promoted(&crowd.term, &first.at.run, &crowd.pod).await;
    let third = world.begin(&crowd.pod).await;
    let hold = Hold::Fence {
        fence: third.at.fence,
        counted: true,
    };
    let back = world.back(&crowd.pod, &third.at.run, hold);
    world.store.hand_back(&back).await.expect("hand_back");
    world.due_is(&[&first.at.run]).await;
    assert_eq!(world.state(&waits).await, RunState::Parked);
}

/// Whatever ends the active run releases: a loss as well as a cancellation.
pub async fn every_end_releases(world: World) {
    let crowd = Crowd::new(&world).await;
    let (second, third) = (crowd.parked(&world, 2).await, crowd.parked(&world, 3).await);
    world.expire(&crowd.holder).await;
    let loss = Loss {
        state: RunState::Lost,
        reason: "gone".into(),
        quarantine: false,
        digest: None,
        retention: keep(),
    };
    let seen = Seen::Running(crowd.holder.at.fence);
    let lost = world
        .store
        .lose(&crowd.term, &crowd.holder.at.run, seen, &loss)
        .await;
    assert_eq!(lost.expect("lose"), Losing::Lost);
    world.due_is(&[&second]).await;
    world.promoted(&crowd.term, &second, &crowd.pod).await;
    let running = world.begin(&crowd.pod).await;
    world
        .store
        .finish(&running.retry(super::LONG))
        .await
        .expect("finish");
    let cancelled = world.store.cancel(&second, "ann", keep()).await;
    assert_eq!(cancelled.expect("cancel"), Cancelled::Ended);
    world.due_is(&[&third]).await;
}

/// A parked run that is cancelled makes nobody due: the active run still runs.
pub async fn a_cancelled_parked_run_releases_nobody(world: World) {
    let crowd = Crowd::new(&world).await;
    let (second, third) = (crowd.parked(&world, 2).await, crowd.parked(&world, 3).await);
    let cancelled = world.store.cancel(&second, "ann", keep()).await;
    assert_eq!(cancelled.expect("cancel"), Cancelled::Ended);
    assert_eq!(world.state(&second).await, RunState::Cancelled);
    world.due_is(&[]).await;
    world
        .store
        .finish(&crowd.holder.success())
        .await
        .expect("finish");
    world.due_is(&[&third]).await;
}

/// A run that was released and cancelled before it began hands its turn on.
pub async fn a_released_run_that_is_cancelled_hands_its_turn_on(world: World) {
    let crowd = Crowd::new(&world).await;
    let (second, third) = (crowd.parked(&world, 2).await, crowd.parked(&world, 3).await);
    world
        .store
        .finish(&crowd.holder.success())
        .await
        .expect("finish");
    world.promoted(&crowd.term, &second, &crowd.pod).await;
    world
        .store
        .cancel(&second, "ann", keep())
        .await
        .expect("cancel");
    world.due_is(&[&third]).await;
}

/// The active run ended between the refused claim and the parking: the run is due now.
pub async fn parking_behind_nobody_is_due_now(world: World) {
    let crowd = Crowd::new(&world).await;
    let taken = crowd.overlapping(&world, 2).await;
    world
        .store
        .finish(&crowd.holder.success())
        .await
        .expect("finish");
    assert_eq!(crowd.park(&world, &taken, 1).await, Parked::Parked);
    world.due_is(&[&taken.run]).await;
    world.promoted(&crowd.term, &taken.run, &crowd.pod).await;
    let running = world.begin(&crowd.pod).await;
    assert_eq!(running.attempt.task.reason, Reason::Scheduled);
}

/// What was claimed, given back or sent elsewhere meanwhile is not parked.
pub async fn what_is_not_held_is_not_parked(world: World) {
    let crowd = Crowd::new(&world).await;
    let mut taken = crowd.holder.claim.taken.clone();
    assert_eq!(
        crowd.park(&world, &taken, 9).await,
        Parked::Changed,
        "it executes"
    );
    taken.run = world.run(&crowd.job, 99);
    assert_eq!(
        crowd.park(&world, &taken, 9).await,
        Parked::Changed,
        "unknown"
    );
    let mut other = crowd.overlapping(&world, 2).await;
    other.delivery.0 += 1;
    assert_eq!(
        crowd.park(&world, &other, 9).await,
        Parked::Changed,
        "another delivery"
    );
}
