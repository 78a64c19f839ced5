//! What operators do to a job.

use wasmcron_core::ids::Digest;
use wasmcron_core::run::RunState;
use wasmcron_core::view::{PodLoad, Waiting};
use wasmcron_store::pods::{Draining, Standing};
use wasmcron_store::recovery::{Losing, Loss, Seen};
use wasmcron_store::schedule::{Opened, Operated, Published};

use super::world::{LONG, World, keep, stored};

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
        digest: None,
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

/// A pod that an operator asks to leave gets nothing more, and is told; its next session is not asked.
pub async fn a_pod_is_asked_to_leave(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let nobody = "nobody".parse().expect("an address");
    let drain = async |address| store.drain(address, "ann|e").await.expect("drain");
    assert_eq!(drain(&nobody).await, Draining::Unknown);
    assert_eq!(drain(&pod.address).await, Draining::Asked);
    assert_eq!(drain(&pod.address).await, Draining::Leaving);
    let answers = world.publish(&term, &[world.firing(&job, 1, &pod)]).await;
    assert_eq!(answers, [Published::NoPod]);
    let pods = store.pods().await.expect("pods");
    assert!(
        pods.iter()
            .any(|it| it.address == pod.address && it.load.draining)
    );
    for _ in 0..2 {
        let beat = store.heartbeat(&pod, &PodLoad::default(), LONG).await;
        let Ok(Standing::AskedToLeave { by, now }) = beat else {
            panic!("{beat:?}");
        };
        assert_eq!(by, "ann|e");
        assert!(now <= world.now().await);
    }
    let answers = world.publish(&term, &[world.firing(&job, 1, &pod)]).await;
    assert_eq!(answers, [Published::NoPod], "a heartbeat changes nothing");
    let again = world.pod("a").await;
    assert_ne!(again.session, pod.session);
    world.beat(&again).await;
    world.fire(&term, &job, 1, &again).await;
}

/// Quarantines are listed, with the plugin version that caused them.
pub async fn quarantines_are_listed(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    assert_eq!(store.quarantined().await.expect("quarantined"), []);
    for (name, digest) in [("k", None), ("j", Some(Digest::of(b"p")))] {
        let job = world.job(&term, name).await;
        let running = world.running(&term, &job, 1, &pod).await;
        world.expire(&running).await;
        let loss = Loss {
            state: RunState::Lost,
            reason: "it killed|its pods".into(),
            quarantine: true,
            digest,
            retention: keep(),
        };
        let seen = Seen::Running(running.at.fence);
        let lost = store.lose(&term, &running.at.run, seen, &loss).await;
        assert_eq!(lost.expect("lose"), Losing::Lost);
    }
    let held = store.quarantined().await.expect("quarantined");
    let said: Vec<_> = held
        .iter()
        .map(|(job, hold)| (job.as_str(), hold.why.as_str(), hold.digest.clone()))
        .collect();
    let why = "it killed|its pods";
    assert_eq!(said, [("j", why, Some(Digest::of(b"p"))), ("k", why, None)]);
    let view = store.job(&held[0].0).await.expect("job").expect("a view");
    assert_eq!(view.quarantined, Some(held[0].1.clone()));
    store.release(&held[0].0, "ann").await.expect("release");
    assert_eq!(store.quarantined().await.expect("quarantined").len(), 1);
}

/// What a disabled or paused job did not fire is one gap that says so when its definition changes.
pub async fn a_held_jobs_times_are_counted(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    for (name, why) in [("off", "disabled"), ("held", "paused")] {
        let job = world.job(&term, name).await;
        let view = store.job(&job).await.expect("job").expect("a view");
        let mut disabled = view.stored.definition.clone();
        let mut was = view.stored.hash;
        if why == "disabled" {
            disabled.enabled = false;
            let changed = stored(disabled.clone(), world.at(10));
            let opened = store.open(&term, &job, Some(&was), &changed).await;
            assert!(matches!(opened, Ok(Opened::Opened { .. })), "{opened:?}");
            was = changed.hash;
        } else {
            store.pause(&job, "ann", "").await.expect("pause");
        }
        disabled.enabled = true;
        disabled.resumable = false;
        let changed = stored(disabled, world.at(20));
        for _ in 0..2 {
            let opened = store.open(&term, &job, Some(&was), &changed).await;
            assert!(matches!(opened, Ok(Opened::Opened { .. })), "{opened:?}");
        }
        let gaps = store.gaps(&job, 10).await.expect("gaps");
        // A nominal time a second.
        let expected = if why == "disabled" { 10 } else { 20 };
        assert_eq!((gaps[0].why.as_str(), gaps[0].count), (why, expected));
    }
}
