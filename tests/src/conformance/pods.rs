//! Which pods live, and what they say of themselves.

use std::time::Duration;

use wasmcron_core::ids::PodRef;
use wasmcron_core::view::{Pod, PodLoad};
use wasmcron_store::pods::{Forgotten, Standing};
use wasmcron_store::schedule::Published;

use super::Damage;
use super::world::{LONG, World, report};

const TINY: Duration = Duration::from_millis(1);

async fn seen(world: &World, pod: &PodRef) -> Pod {
    let pods = world.store.pods().await.expect("pods");
    let mut found = pods.into_iter().filter(|one| one.address == pod.address);
    found.next().expect("the pod is known")
}

fn is_current(standing: &Standing) -> bool {
    matches!(standing, Standing::Current { .. })
}

/// What a pod registers and beats is what the others see, in the order of addresses.
pub async fn what_a_pod_says_is_seen(world: World) {
    let store = &world.store;
    let (b, a) = (world.session("b:1"), world.session("a:1"));
    let started = world.now().await;
    for pod in [&b, &a] {
        let standing = store.register(pod, started, &report(started)).await;
        assert!(is_current(&standing.expect("register")));
    }
    let before = seen(&world, &a).await;
    assert_eq!(
        (before.heartbeat, before.session),
        (None, Some(a.session.clone()))
    );
    let load = PodLoad {
        running: 3,
        exclusive: Some(world.run(&world.name("j"), 1)),
        draining: false,
        last_take: started,
    };
    assert!(is_current(
        &store.heartbeat(&a, &load, LONG).await.expect("heartbeat")
    ));
    let after = seen(&world, &a).await;
    assert_eq!(after.load, load);
    assert_eq!(after.report.as_deref(), Some(&report(started)));
    assert!(after.is_active(world.now().await, LONG));
    let order: Vec<_> = store
        .pods()
        .await
        .expect("pods")
        .into_iter()
        .map(|pod| pod.address)
        .collect();
    assert_eq!(order, [a.address, b.address]);
}

/// The answers carry the store's clock.
pub async fn standings_carry_the_clock(world: World) {
    let pod = world.pod("a").await;
    let before = world.now().await;
    let standing = world.store.heartbeat(&pod, &PodLoad::default(), LONG).await;
    let Ok(Standing::Current { now }) = standing else {
        panic!("{standing:?}");
    };
    assert!(before <= now && now <= world.now().await);
}

/// Registering again, as after a lost answer, is no new session.
pub async fn a_repeated_registration_is_current(world: World) {
    let pod = world.session("a");
    let now = world.now().await;
    for _ in 0..2 {
        let standing = world.store.register(&pod, now, &report(now)).await;
        assert!(is_current(&standing.expect("register")));
    }
}

/// The later start has the address, in whatever order the two arrive.
pub async fn the_later_start_has_the_address(world: World) {
    let store = &world.store;
    let now = world.now().await;
    let (old, new) = (world.session("a"), world.session("a"));
    let later = now + Duration::from_secs(1);
    store
        .register(&new, later, &report(later))
        .await
        .expect("register");
    let standing = store
        .register(&old, now, &report(now))
        .await
        .expect("register");
    assert_eq!(standing, Standing::Superseded, "an earlier start");
    assert_eq!(seen(&world, &new).await.session, Some(new.session.clone()));

    let twin = world.session("a");
    assert!(twin.session > new.session);
    let standing = store.register(&twin, later, &report(later)).await;
    assert!(
        is_current(&standing.expect("register")),
        "equal starts: the larger session"
    );
    let standing = store.register(&new, later, &report(later)).await;
    assert_eq!(standing.expect("register"), Standing::Superseded);
}

/// A process whose address another session has is told so by everything it asks.
pub async fn a_superseded_session_is_told_so(world: World) {
    let old = world.pod("a").await;
    let new = world.pod("a").await;
    let store = &world.store;
    let now = world.now().await;
    let load = PodLoad::default();
    let standings = [
        store.heartbeat(&old, &load, LONG).await.expect("heartbeat"),
        store.report(&old, &report(now)).await.expect("report"),
        store.leave(&old).await.expect("leave"),
    ];
    assert_eq!(standings, [const { Standing::Superseded }; 3]);
    let pod = seen(&world, &new).await;
    assert!(pod.is_active(now, LONG) && !pod.load.draining);
}

/// A store that came back empty asks pods to register again.
pub async fn an_empty_store_asks_to_register(world: World) {
    let pod = world.pod("a").await;
    world.damage(Damage::AllLost).await;
    let store = &world.store;
    let now = world.now().await;
    let beat = store.heartbeat(&pod, &PodLoad::default(), LONG).await;
    assert_eq!(beat.expect("heartbeat"), Standing::Unknown);
    let said = store.report(&pod, &report(now)).await;
    assert_eq!(said.expect("report"), Standing::Unknown);
    let standing = store.register(&pod, now, &report(now)).await;
    assert!(is_current(&standing.expect("register")));
    world.beat(&pod).await;
}

/// A new report replaces the old one; the load stays.
pub async fn a_report_replaces_the_last_one(world: World) {
    let pod = world.pod("a").await;
    let now = world.now().await;
    let mut changed = report(now);
    for version in ["2", "3", "3", "2"] {
        changed.version = version.into();
        let standing = world.store.report(&pod, &changed).await.expect("report");
        assert!(is_current(&standing));
        assert_eq!(seen(&world, &pod).await.report.as_deref(), Some(&changed));
    }
}

/// A pod that leaves gets nothing more, and what was queued for it can go elsewhere.
pub async fn a_pod_that_leaves_gets_nothing_more(world: World) {
    let store = &world.store;
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&other).await;
    let job = world.job(&term, "j").await;
    world.fire(&term, &job, 1, &pod).await;
    assert_eq!(seen(&world, &pod).await.queued, 1);
    for _ in 0..2 {
        assert!(is_current(&store.leave(&pod).await.expect("leave")));
    }
    // A heartbeat that was under way comes late.
    world.beat(&pod).await;
    let left = seen(&world, &pod).await;
    assert_eq!(
        (left.heartbeat, left.load.draining, left.queued),
        (None, true, 0)
    );
    let answers = world.publish(&term, &[world.firing(&job, 2, &pod)]).await;
    assert_eq!(answers, [Published::NoPod]);
    let entries = store.scheduled(None).await.expect("scheduled").entries;
    assert_eq!(
        entries.len(),
        1,
        "the register still has the task: {entries:?}"
    );

    let now = world.now().await;
    store
        .register(&pod, now, &report(now))
        .await
        .expect("register");
    world.beat(&pod).await;
    assert!(seen(&world, &pod).await.is_active(now, LONG), "back again");
}

/// Entries count while they wait in the queue and while they are taken and not claimed.
pub async fn queued_counts_what_is_not_claimed(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    for name in ["j", "k"] {
        let job = world.job(&term, name).await;
        world.fire(&term, &job, 1, &pod).await;
    }
    assert_eq!(seen(&world, &pod).await.queued, 2);
    let taken = world.take(&pod).await;
    assert_eq!(seen(&world, &pod).await.queued, 2);
    world.claimed(world.claim_of(&pod, &taken[0])).await;
    assert_eq!(seen(&world, &pod).await.queued, 1);
}

/// Lets a pod be silent for ten windows.
async fn silent(world: &World, pod: &PodRef) {
    let load = PodLoad::default();
    let beat = world.store.heartbeat(pod, &load, TINY).await;
    beat.expect("heartbeat");
    world.pass(TINY * 20).await;
}

/// After ten windows of silence nothing is left of a pod, and before nothing is touched.
pub async fn a_silent_pod_is_forgotten(world: World) {
    let store = &world.store;
    let (pod, leader) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&leader).await;
    let forgotten = store.forget(&term, &pod.address, LONG).await;
    assert_eq!(forgotten.expect("forget"), Forgotten::InUse);
    silent(&world, &pod).await;
    assert_eq!(
        seen(&world, &pod).await.report,
        None,
        "what it said expired"
    );
    for _ in 0..2 {
        let forgotten = store.forget(&term, &pod.address, TINY).await;
        assert_eq!(forgotten.expect("forget"), Forgotten::Forgotten);
    }
    let pods = store.pods().await.expect("pods");
    assert!(
        pods.iter().all(|one| one.address != pod.address),
        "{pods:?}"
    );
    let beat = store.heartbeat(&pod, &PodLoad::default(), LONG).await;
    assert_eq!(beat.expect("heartbeat"), Standing::Unknown);
}

/// A pod that has just registered and not beaten yet is not forgotten.
pub async fn a_newcomer_is_not_forgotten(world: World) {
    let leader = world.pod("b").await;
    let term = world.lead(&leader).await;
    let pod = world.session("a");
    let now = world.now().await;
    world
        .store
        .register(&pod, now, &report(now))
        .await
        .expect("register");
    let forgotten = world.store.forget(&term, &pod.address, TINY).await;
    assert_eq!(forgotten.expect("forget"), Forgotten::InUse);
}

/// A pod that a register names is not forgotten, however silent it is.
pub async fn a_pod_with_entries_is_not_forgotten(world: World) {
    let (queued, runs, leader) = (
        world.pod("q").await,
        world.pod("r").await,
        world.pod("b").await,
    );
    let term = world.lead(&leader).await;
    let (j, k) = (world.job(&term, "j").await, world.job(&term, "k").await);
    world.fire(&term, &j, 1, &queued).await;
    world.running(&term, &k, 1, &runs).await;
    for pod in [&queued, &runs] {
        silent(&world, pod).await;
        let forgotten = world.store.forget(&term, &pod.address, TINY).await;
        assert_eq!(
            forgotten.expect("forget"),
            Forgotten::InUse,
            "{}",
            pod.address
        );
    }
}
