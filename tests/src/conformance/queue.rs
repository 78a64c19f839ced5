//! From a queue into execution.

use std::time::Duration;

use wasmcron_core::ids::{Delivery, PodAddress};
use wasmcron_core::run::RunState;
use wasmcron_store::queue::{Claimed, Hold, Moved, Parked, Taken};

use super::world::{LONG, World};
use super::{Damage, Running};

/// A take moves entries, in order, to what the pod has not claimed; there they stay.
pub async fn a_take_moves_entries(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    for seconds in 1..=4 {
        world.fire(&term, &job, seconds, &pod).await;
    }
    let mut consumer = world.store.consumer(&pod);
    let first = consumer.take(Duration::ZERO, 3).await.expect("take");
    let runs: Vec<_> = first.iter().map(|taken| taken.run.clone()).collect();
    assert_eq!(runs, [1, 2, 3].map(|seconds| world.run(&job, seconds)));
    let rest = consumer.take(LONG, 3).await.expect("take");
    assert_eq!(
        rest.len(),
        1,
        "more is known to wait, so this does not block"
    );
    assert!(
        consumer
            .take(Duration::ZERO, 3)
            .await
            .expect("take")
            .is_empty()
    );
    let claiming = world.store.claiming(&pod).await.expect("claiming");
    assert_eq!(claiming, [first, rest].concat());
}

/// A pod that waits gets a task as soon as there is one.
pub async fn a_waiting_take_gets_the_next_task(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let mut consumer = world.store.consumer(&pod);
    let (taken, run) = tokio::join!(consumer.take(LONG, 4), async {
        world.pass(Duration::from_millis(30)).await;
        world.fire(&term, &job, 1, &pod).await
    });
    let taken = taken.expect("take");
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].run, run);
}

/// A wait without a task ends by itself.
pub async fn a_wait_without_a_task_ends(world: World) {
    let pod = world.pod("a").await;
    let mut consumer = world.store.consumer(&pod);
    let taken = consumer
        .take(Duration::from_millis(20), 4)
        .await
        .expect("take");
    assert_eq!(taken, []);
}

/// An entry that is none is set aside, and those behind it are served.
pub async fn an_entry_that_is_none_is_set_aside(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    for text in ["rubbish", "", "j@x|1", "j@2026-01-01T00:00:00Z|x"] {
        world
            .damage(Damage::QueueEntry(pod.clone(), text.into()))
            .await;
    }
    let run = world.fire(&term, &job, 1, &pod).await;
    let taken = world.take(&pod).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].run, run);
    assert_eq!(world.store.claiming(&pod).await.expect("claiming"), taken);
    assert_eq!(world.store.counts().await.expect("counts").dead_letters, 4);
}

/// A claim moves the entry, takes the lock, the job's place and a new fence, all at once.
pub async fn c48_a_claim_is_one_step(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let run = world.fire(&term, &job, 1, &pod).await;
    let before = world.now().await;
    let running = world.begin(&pod).await;
    assert!(store.claiming(&pod).await.expect("claiming").is_empty());
    assert!(
        store
            .scheduled(None)
            .await
            .expect("scheduled")
            .entries
            .is_empty()
    );
    let page = store.running(None).await.expect("running");
    let [entry] = page.entries.as_slice() else {
        panic!("{page:?}");
    };
    assert_eq!((&entry.pod, &entry.session), (&pod.address, &pod.session));
    assert_eq!((entry.fence, &entry.task.run), (running.at.fence, &run));
    assert_eq!(entry.claimed_at, running.attempt.claimed_at);
    assert!(entry.claimed_at >= before && entry.ends_by == entry.claimed_at + LONG);
    let locks = store
        .locks(&[world.name("other"), job.clone()])
        .await
        .expect("locks");
    let [None, Some(lock)] = locks.as_slice() else {
        panic!("{locks:?}");
    };
    assert_eq!(
        (&lock.pod, &lock.run, lock.fence),
        (&pod, &run, running.at.fence)
    );
    assert!(lock.expires_in > LONG / 2 && lock.expires_in <= LONG);
    let view = store.job(&job).await.expect("job").expect("a view");
    assert_eq!(view.active, Some(run));
}

/// However fast they follow each other, no delivery and no fence is given twice, and later ones are
/// larger.
pub async fn numbers_only_grow(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let (mut deliveries, mut fences) = (Vec::new(), Vec::new());
    for batch in 0..10 {
        let mut firings = Vec::new();
        for n in 0..3 {
            let job = world.job(&term, &format!("j{batch}-{n}")).await;
            firings.push(world.firing(&job, 1, &pod));
        }
        world.publish(&term, &firings).await;
        for taken in world.take(&pod).await {
            let running = world.claimed(world.claim_of(&pod, &taken)).await;
            deliveries.push(taken.delivery);
            fences.push(running.at.fence);
        }
    }
    assert_eq!(fences.len(), 30);
    assert!(
        deliveries.is_sorted_by(|one, next| one < next),
        "{deliveries:?}"
    );
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

/// The answer to a claim was lost: the same token gets the same attempt, and the lock's full length.
pub async fn a_repeated_claim_is_the_same_attempt(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world.fire(&term, &job, 1, &pod).await;
    let mut claim = world.claim_of(&pod, &world.take_one(&pod).await);
    claim.lock_ttl = Duration::from_secs(60);
    let first = world.claimed(claim.clone()).await;
    claim.lock_ttl = LONG;
    let again = world.claimed(claim).await;
    assert_eq!(again.attempt, first.attempt);
    let locks = world.store.locks(&[job]).await.expect("locks");
    assert!(
        locks[0]
            .as_ref()
            .is_some_and(|lock| lock.expires_in > LONG / 2)
    );
}

/// What means nothing any more is stale, and leaves what the pod has not claimed.
pub async fn a_claim_of_nothing_is_stale(world: World) {
    let store = &world.store;
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let unknown = Taken {
        run: world.run(&job, 9),
        delivery: Delivery(1),
    };
    let stale = store
        .claim(&world.claim_of(&pod, &unknown))
        .await
        .expect("claim");
    assert_eq!(stale, Claimed::Stale);

    world.fire(&term, &job, 1, &pod).await;
    let taken = world.take_one(&pod).await;
    let theirs = store
        .claim(&world.claim_of(&other, &taken))
        .await
        .expect("claim");
    assert_eq!(theirs, Claimed::Stale, "another pod's task");
    let mut wrong = taken.clone();
    wrong.delivery = Delivery(taken.delivery.0 + 1);
    let wrong = store
        .claim(&world.claim_of(&pod, &wrong))
        .await
        .expect("claim");
    assert_eq!(wrong, Claimed::Stale, "another delivery");

    let running = world.claimed(world.claim_of(&pod, &taken)).await;
    let second = store
        .claim(&world.claim_of(&pod, &taken))
        .await
        .expect("claim");
    assert_eq!(second, Claimed::Stale, "another take of the same delivery");
    store.finish(&running.success()).await.expect("finish");
    for claim in [running.claim.clone(), world.claim_of(&pod, &taken)] {
        assert_eq!(
            store.claim(&claim).await.expect("claim"),
            Claimed::Stale,
            "over"
        );
    }
    assert!(store.claiming(&pod).await.expect("claiming").is_empty());
}

/// A process whose address another session has claims nothing; the new one may.
pub async fn a_superseded_session_claims_nothing(world: World) {
    let store = &world.store;
    let leader = world.pod("l").await;
    let old = world.pod("a").await;
    let term = world.lead(&leader).await;
    let job = world.job(&term, "j").await;
    world.fire(&term, &job, 1, &old).await;
    let taken = world.take_one(&old).await;
    let new = world.pod("a").await;
    let claim = world.claim_of(&old, &taken);
    assert_eq!(
        store.claim(&claim).await.expect("claim"),
        Claimed::Superseded
    );
    assert_eq!(
        store.skip(&old, &taken, "x").await.expect("skip"),
        Moved::Superseded
    );
    assert_eq!(
        store.park(&old, &taken, 9).await.expect("park"),
        Parked::Changed
    );
    let hold = Hold::Delivery(taken.delivery);
    let back = world.back(&old, &taken.run, hold);
    assert_eq!(
        store.hand_back(&back).await.expect("hand_back"),
        Moved::Superseded
    );
    assert_eq!(
        store.claiming(&new).await.expect("claiming"),
        std::slice::from_ref(&taken)
    );
    world.claimed(world.claim_of(&new, &taken)).await;
}

/// A task whose job still runs overlaps, and nothing changes: it can be claimed once that ended.
pub async fn an_overlap_changes_nothing(world: World) {
    let store = &world.store;
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let holder = world.running(&term, &job, 1, &pod).await;
    world.fire(&term, &job, 2, &other).await;
    let claim = world.claim_of(&other, &world.take_one(&other).await);
    for _ in 0..2 {
        let overlap = Claimed::Overlap {
            holder: holder.at.run.clone(),
        };
        assert_eq!(store.claim(&claim).await.expect("claim"), overlap);
    }
    assert_eq!(
        store.claiming(&other).await.expect("claiming"),
        std::slice::from_ref(&claim.taken)
    );
    assert_eq!(world.state(&claim.taken.run).await, RunState::Scheduled);
    let locks = store
        .locks(std::slice::from_ref(&job))
        .await
        .expect("locks");
    assert_eq!(
        locks[0].as_ref().map(|lock| lock.fence),
        Some(holder.at.fence)
    );
    store.finish(&holder.success()).await.expect("finish");
    world.claimed(claim).await;
}

/// A skipped firing is over and says why; a repeat is told the same.
pub async fn a_skipped_firing_is_over(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let holder = world.running(&term, &job, 1, &pod).await;
    world.fire(&term, &job, 2, &pod).await;
    let taken = world.take_one(&pod).await;
    let mut other = taken.clone();
    other.delivery = Delivery(taken.delivery.0 + 1);
    assert_eq!(
        store.skip(&pod, &other, "x").await.expect("skip"),
        Moved::Changed
    );
    for _ in 0..2 {
        let why = "1|still runs";
        assert_eq!(
            store.skip(&pod, &taken, why).await.expect("skip"),
            Moved::Moved
        );
    }
    let record = world.record(&taken.run).await;
    assert_eq!(
        (record.state, record.why.as_deref()),
        (RunState::Skipped, Some("1|still runs"))
    );
    assert!(record.ended_at.is_some() && record.attempts.is_empty());
    assert!(store.claiming(&pod).await.expect("claiming").is_empty());
    let claim = world.claim_of(&pod, &taken);
    assert_eq!(store.claim(&claim).await.expect("claim"), Claimed::Stale);
    assert_eq!(world.state(&holder.at.run).await, RunState::Running);
}

/// Only a cron firing that has not begun is skipped.
pub async fn what_has_begun_or_was_asked_for_is_not_skipped(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    store
        .finish(&running.retry(Duration::ZERO))
        .await
        .expect("finish");
    let asked = world.submitted(&world.manual(&job)).await;
    for run in [&running.at.run, &asked] {
        world.promoted(&term, run, &pod).await;
        let taken = world.take_one(&pod).await;
        assert_eq!(
            store.skip(&pod, &taken, "x").await.expect("skip"),
            Moved::Changed
        );
        assert_eq!(world.state(run).await, RunState::Scheduled, "{run}");
    }
}

impl World {
    /// Gives a task back for another pod, due now.
    #[must_use]
    pub fn back(
        &self,
        me: &wasmcron_core::ids::PodRef,
        run: &wasmcron_core::ids::RunId,
        hold: Hold,
    ) -> wasmcron_store::queue::HandBack {
        wasmcron_store::queue::HandBack {
            me: me.clone(),
            run: run.clone(),
            hold,
            why: "no|room".into(),
            avoid: true,
            due_in: Duration::ZERO,
        }
    }
}

/// A task given back is due again, and remembers who cannot take it.
pub async fn a_task_given_back_is_due_again(world: World) {
    let store = &world.store;
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world.fire(&term, &job, 1, &pod).await;
    let taken = world.take_one(&pod).await;
    let wrong = Hold::Delivery(Delivery(taken.delivery.0 + 1));
    let wrong = world.back(&pod, &taken.run, wrong);
    assert_eq!(
        store.hand_back(&wrong).await.expect("hand_back"),
        Moved::Changed
    );
    let back = world.back(&pod, &taken.run, Hold::Delivery(taken.delivery));
    let mut theirs = back.clone();
    theirs.me = other.clone();
    assert_eq!(
        store.hand_back(&theirs).await.expect("hand_back"),
        Moved::Changed
    );
    for _ in 0..2 {
        assert_eq!(
            store.hand_back(&back).await.expect("hand_back"),
            Moved::Moved
        );
    }
    assert!(store.claiming(&pod).await.expect("claiming").is_empty());
    let due = world.due(10).await;
    assert_eq!(
        (due.entries.len(), due.entries[0].why.as_str()),
        (1, "no|room")
    );
    let task = &due.entries[0].task;
    assert_eq!(
        (task.attempt, task.avoid.as_slice()),
        (1, [pod.address.clone()].as_slice())
    );

    world.promoted(&term, &taken.run, &other).await;
    let taken = world.take_one(&other).await;
    let back = world.back(&other, &taken.run, Hold::Delivery(taken.delivery));
    assert_eq!(
        store.hand_back(&back).await.expect("hand_back"),
        Moved::Moved
    );
    let both: Vec<PodAddress> = vec![pod.address.clone(), other.address.clone()];
    assert_eq!(world.due(10).await.entries[0].task.avoid, both);
}

/// A session finds the attempts of its dead self and gives them back: counted, and continued from
/// the checkpoint.
pub async fn c37_a_dead_sessions_attempt_is_given_back(world: World) {
    let store = &world.store;
    let leader = world.pod("l").await;
    let old = world.pod("a").await;
    let term = world.lead(&leader).await;
    let job = world.job(&term, "j").await;
    let dead = world.running(&term, &job, 1, &old).await;
    dead.save(&world, 1, b"one").await;
    let new = world.pod("a").await;
    let attempts = std::slice::from_ref(&dead.at);
    let extended = store.extend(&new, attempts, LONG).await.expect("extend");
    assert_eq!(
        extended,
        [wasmcron_store::runs::Extension::Lost],
        "not the new one's lock"
    );
    let hold = Hold::Fence {
        fence: dead.at.fence,
        counted: true,
    };
    let mut back = world.back(&new, &dead.at.run, hold);
    back.avoid = false;
    for _ in 0..2 {
        assert_eq!(
            store.hand_back(&back).await.expect("hand_back"),
            Moved::Moved
        );
    }
    let locks = store
        .locks(std::slice::from_ref(&job))
        .await
        .expect("locks");
    assert_eq!(locks, [None]);
    let record = world.record(&dead.at.run).await;
    assert_eq!((record.state, record.recoveries), (RunState::Delayed, 1));
    world.promoted(&term, &dead.at.run, &new).await;
    let next: Running = world.begin(&new).await;
    assert_eq!(next.attempt.task.attempt, 2);
    let kept = next.attempt.checkpoint.expect("a checkpoint");
    assert_eq!((kept.seq, kept.data.as_slice()), (1, b"one".as_slice()));
}
