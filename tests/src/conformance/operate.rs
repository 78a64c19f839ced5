//! What operators do to a job.

use wasmcron_core::run::RunState;
use wasmcron_core::view::Waiting;
use wasmcron_store::recovery::{Losing, Loss, Seen};
use wasmcron_store::schedule::{Operated, Published};

use super::world::{World, keep};

/// A paused job fires nothing until it is resumed; what was due in between is one gap.
pub async fn a_paused_job_fires_nothing(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    assert_eq!(
        store
            .pause(&job, "ann|e", "too\nloud")
            .await
            .expect("pause"),
        Operated::Done
    );
    assert_eq!(
        store.pause(&job, "bob", "").await.expect("pause"),
        Operated::Unchanged
    );
    let view = store.job(&job).await.expect("job").expect("a view");
    let hold = view.paused.expect("it is paused");
    assert_eq!(
        (hold.by.as_str(), hold.why.as_str()),
        ("ann|e", "too\nloud")
    );
    assert!(hold.at <= world.now().await);
    let answers = world.publish(&term, &[world.firing(&job, 1, &pod)]).await;
    assert_eq!(answers, [Published::Paused]);
    let answers = world
        .publish(&term, &[world.gap(&job, 1, 2, "paused")])
        .await;
    assert_eq!(answers, [Published::Published], "gaps may be decided");

    let before = world.now().await;
    assert_eq!(
        store.resume(&job, "ann").await.expect("resume"),
        Operated::Done
    );
    assert_eq!(
        store.resume(&job, "ann").await.expect("resume"),
        Operated::Unchanged
    );
    let view = store.job(&job).await.expect("job").expect("a view");
    assert_eq!(view.paused, None);
    assert!(view.cursor >= before && view.cursor <= world.now().await);
    let gaps = store.gaps(&job, 1).await.expect("gaps");
    assert_eq!((gaps[0].why.as_str(), gaps[0].to), ("paused", view.cursor));
    assert!(gaps[0].from > world.at(2));
    let seconds = view.cursor.since(world.at(2)).as_secs();
    assert_eq!(gaps[0].count, seconds, "one nominal time a second");
}

/// Nobody can operate a job that is not there.
pub async fn an_unknown_job_cannot_be_operated(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.name("j");
    let store = &world.store;
    let answers = [
        store.pause(&job, "ann", "").await.expect("pause"),
        store.resume(&job, "ann").await.expect("resume"),
        store.release(&job, "ann").await.expect("release"),
        store.retire(&term, &job).await.expect("retire"),
    ];
    assert_eq!(answers, [Operated::UnknownJob; 4]);
}

/// A quarantined job fires nothing until an operator releases it.
pub async fn a_quarantined_job_fires_nothing(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    assert_eq!(
        store.release(&job, "ann").await.expect("release"),
        Operated::Unchanged
    );
    let running = world.running(&term, &job, 1, &pod).await;
    world.expire(&running).await;
    let loss = Loss {
        state: RunState::Lost,
        reason: "poison".into(),
        quarantine: true,
        retention: keep(),
    };
    let seen = Seen::Running(running.at.fence);
    let lost = store.lose(&term, &running.at.run, seen, &loss).await;
    assert_eq!(lost.expect("lose"), Losing::Lost);
    let view = store.job(&job).await.expect("job").expect("a view");
    assert_eq!(view.quarantined.expect("it is held").why, "poison");
    let answers = world.publish(&term, &[world.firing(&job, 2, &pod)]).await;
    assert_eq!(answers, [Published::Quarantined]);
    assert_eq!(
        store.release(&job, "ann").await.expect("release"),
        Operated::Done
    );
    world.fire(&term, &job, 2, &pod).await;
}

/// Why a job waits is kept until it is taken back.
pub async fn why_a_job_waits_is_shown(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let waiting = Waiting {
        since: world.at(3),
        why: "no live pod | none".into(),
    };
    for waiting in [Some(&waiting), None] {
        world
            .store
            .set_waiting(&term, &job, waiting)
            .await
            .expect("set_waiting");
        let view = world.store.job(&job).await.expect("job").expect("a view");
        assert_eq!(view.waiting.as_ref(), waiting);
    }
}

/// Retiring removes the schedule and keeps what was run.
pub async fn a_retired_job_keeps_its_records(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    store.finish(&running.success()).await.expect("finish");
    store.pause(&job, "ann", "").await.expect("pause");
    assert_eq!(
        store.retire(&term, &job).await.expect("retire"),
        Operated::Done
    );
    assert_eq!(
        store.retire(&term, &job).await.expect("retire"),
        Operated::UnknownJob
    );
    assert_eq!(store.job(&job).await.expect("job"), None);
    assert_eq!(store.runs(&job, 10).await.expect("runs").len(), 1);
    world.job(&term, "j").await;
    let view = store.job(&job).await.expect("job").expect("a view");
    assert_eq!((view.paused, view.successes.count), (None, 1));
}
