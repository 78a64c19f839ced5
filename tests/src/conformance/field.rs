//! Leaders and refused pods: reports from the field about other schedulers, cut down to the verbs.

use std::time::Duration;

use wasmcron_core::ids::{JobName, PodRef, RunId};
use wasmcron_core::run::RunState;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::pods::Forgotten;
use wasmcron_store::queue::Claimed;
use wasmcron_store::recovery::{Losing, Register, Republished, Seen};
use wasmcron_store::schedule::{
    Opened, Operated, PromoteAnswer, Promoted, PublishAnswer, Published,
};

use super::world::{LONG, World, definition, keep, stored};

/// Pods `a` and `b`, `b` leading, and a job.
async fn scene(world: &World) -> (PodRef, PodRef, TermRef, JobName) {
    let (a, b) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&b).await;
    let job = world.job(&term, "j").await;
    (a, b, term, job)
}

/// What is due comes from the shared cursor: the next leader fires what the dead one did not, and
/// does not fire again what it did.
pub async fn c25_the_next_leader_goes_on_from_the_cursor(world: World) {
    let (a, _, term, job) = scene(&world).await;
    world.fire(&term, &job, 1, &a).await;
    world.depose(&term).await;
    let next = world.lead(&a).await;
    assert_eq!(world.cursor(&job).await, world.at(1));
    let batch = [world.firing(&job, 1, &a), world.firing(&job, 2, &a)];
    let deduped = Published::Deduped {
        cursor: world.at(1),
    };
    assert_eq!(
        world.publish(&next, &batch).await,
        [deduped, Published::Published]
    );
    assert_eq!(world.take(&a).await.len(), 2);
}

/// Two leaders fire the same time to two pods: one run, also when the second comes after its end.
pub async fn c53_two_leaders_make_one_run(world: World) {
    let (a, b, old, job) = scene(&world).await;
    let running = world.running(&old, &job, 1, &a).await;
    world.depose(&old).await;
    let new = world.lead(&a).await;
    let deduped = [Published::Deduped {
        cursor: world.at(1),
    }];
    assert_eq!(
        world.publish(&new, &[world.firing(&job, 1, &b)]).await,
        deduped
    );
    world
        .store
        .finish(&running.success())
        .await
        .expect("finish");
    assert_eq!(
        world.publish(&new, &[world.firing(&job, 1, &b)]).await,
        deduped
    );
    let answer = world
        .store
        .publish(&old, &[world.firing(&job, 1, &b)])
        .await;
    assert_eq!(answer.expect("publish"), PublishAnswer::NotLeader);
    assert!(world.take(&b).await.is_empty());
    assert_eq!(world.store.runs(&job, 10).await.expect("runs").len(), 1);
}

/// The pod that lost the race for its job leaves nothing that looks like a crash.
pub async fn c55_who_is_refused_leaves_no_trap(world: World) {
    let (a, b, term, job) = scene(&world).await;
    let first = world.running(&term, &job, 1, &a).await;
    world.fire(&term, &job, 2, &b).await;
    let taken = world.take_one(&b).await;
    let claim = world.store.claim(&world.claim_of(&b, &taken)).await;
    assert!(matches!(claim, Ok(Claimed::Overlap { .. })));
    let running = async || {
        let page = world.store.running(None).await.expect("running");
        page.entries
            .into_iter()
            .map(|entry| entry.fence)
            .collect::<Vec<_>>()
    };
    assert_eq!(running().await, [first.at.fence]);
    world
        .store
        .skip(&b, &taken, "it still runs")
        .await
        .expect("skip");
    world.store.finish(&first.success()).await.expect("finish");
    assert_eq!(running().await, []);
    assert_eq!(world.state(&taken.run).await, RunState::Skipped);
    assert!(
        world
            .store
            .scheduled(None)
            .await
            .expect("scheduled")
            .entries
            .is_empty()
    );
}

/// Everything a leader may write is refused to one that was deposed, in the middle of its work.
pub async fn c30_a_deposed_leader_changes_nothing(world: World) {
    let store = &world.store;
    let (a, b, old, job) = scene(&world).await;
    let due = world.submitted(&world.manual(&job)).await;
    let queued = world.fire(&old, &job, 1, &a).await;
    let delivery = world.take_one(&a).await.delivery;
    let other = world.job(&old, "k").await;
    let dead = world.running(&old, &other, 1, &a).await;
    world.expire(&dead).await;
    world.depose(&old).await;
    let new = world.lead(&a).await;
    let events = async || {
        store
            .execution_log(None, 1_000)
            .await
            .expect("execution_log")
            .len()
    };
    let before = events().await;

    let batch = [world.firing(&job, 2, &b), world.gap(&job, 3, 4, "misfire")];
    let answer = store.publish(&old, &batch).await.expect("publish");
    assert_eq!(answer, PublishAnswer::NotLeader);
    let moves = [(due.clone(), b.address.clone())];
    let answer = store.promote(&old, &moves).await.expect("promote");
    assert_eq!(answer, PromoteAnswer::NotLeader);
    let stored = stored(definition(), world.at(40));
    let answer = store
        .open(&old, &world.name("new"), None, &stored)
        .await
        .expect("open");
    assert_eq!(answer, Opened::NotLeader);
    refused_recovery(
        &world,
        &old,
        [
            (&queued, Seen::Scheduled(delivery)),
            (&dead.at.run, Seen::Running(dead.at.fence)),
        ],
        &b,
    )
    .await;
    store
        .explain_delayed(&old, &due, "x", LONG)
        .await
        .expect("explain_delayed");
    let waiting = wasmcron_core::view::Waiting {
        since: world.at(0),
        why: "x".into(),
    };
    store
        .set_waiting(&old, &job, Some(&waiting))
        .await
        .expect("set_waiting");
    assert_ne!(
        store.retire(&old, &job).await.expect("retire"),
        Operated::Done
    );
    let forgotten = store
        .forget(&old, &b.address, Duration::from_millis(1))
        .await;
    assert_eq!(forgotten.expect("forget"), Forgotten::NotLeader);

    assert_eq!(events().await, before, "nothing happened");
    world.due_is(&[&due]).await;
    let view = store.job(&job).await.expect("job").expect("a view");
    assert_eq!((view.cursor, view.waiting), (world.at(1), None));
    let answers = world.promote(&new, &[(&due, &b)]).await;
    assert_eq!(answers, [Promoted::Promoted]);
}

async fn refused_recovery(world: &World, old: &TermRef, seen: [(&RunId, Seen); 2], to: &PodRef) {
    for (run, seen) in seen {
        let state = world.state(run).await;
        assert_eq!(
            world.republish(old, run, seen, to).await,
            Republished::NotLeader
        );
        assert_eq!(world.lose(old, run, seen).await, Losing::NotLeader);
        assert_eq!(world.state(run).await, state);
    }
    for register in [Register::Scheduled, Register::Running, Register::Delayed] {
        let buried = world
            .store
            .bury(old, register, &seen[0].0.into(), keep())
            .await;
        assert!(!buried.expect("bury"));
    }
}
