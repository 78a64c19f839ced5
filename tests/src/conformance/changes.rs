//! What changed since a view was read.

use std::time::Duration;

use wasmcron_core::ids::JobName;
use wasmcron_core::run::RunState;
use wasmcron_core::view::Waiting;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::recovery::{Losing, Loss, Seen};
use wasmcron_store::schedule::{Changes, Opened, Operated, PAGE_MAX, Published, ViewVersion};

use super::Damage;
use super::world::{World, definition, keep, stored};

/// The version of a view that is read whole from now on.
async fn everything(world: &World, since: Option<ViewVersion>) -> ViewVersion {
    match world.store.changes(since).await.expect("changes") {
        Changes::Everything { version } => version,
        known => panic!("{since:?} is known: {known:?}"),
    }
}

/// The jobs that changed since a version, and the next version.
async fn changed(world: &World, since: ViewVersion) -> (Vec<JobName>, ViewVersion) {
    match world.store.changes(Some(since)).await.expect("changes") {
        Changes::Jobs { version, jobs } => (jobs, version),
        Changes::Everything { version } => panic!("{since:?} is not known at {version:?}"),
    }
}

/// A pod that leads, jobs, and the version at which they were read.
async fn read(world: &World, names: &[&str]) -> (TermRef, Vec<JobName>, ViewVersion) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let mut jobs = Vec::new();
    for name in names {
        jobs.push(world.job(&term, name).await);
    }
    let version = everything(world, None).await;
    (term, jobs, version)
}

/// Who read nothing yet, and who read an empty store, reads everything; who did and looks again has
/// nothing to read.
pub async fn at_first_everything_is_read(world: World) {
    let empty = everything(&world, None).await;
    let (_, _, version) = read(&world, &["a", "b"]).await;
    assert!(everything(&world, Some(empty)).await >= version);
    assert_eq!(changed(&world, version).await, (vec![], version));
}

/// Whoever knew the view before is told of a change, each once, and nobody takes it from another.
pub async fn a_change_is_told_once_to_each(world: World) {
    let (_, jobs, version) = read(&world, &["a", "b", "c"]).await;
    world.store.pause(&jobs[1], "ann", "").await.expect("pause");
    let (first, next) = changed(&world, version).await;
    assert_eq!(first, [jobs[1].clone()]);
    assert!(next > version);
    assert_eq!(changed(&world, next).await, (vec![], next));
    world.store.resume(&jobs[1], "bob").await.expect("resume");
    world.store.pause(&jobs[0], "ann", "").await.expect("pause");
    let (second, _) = changed(&world, next).await;
    assert_eq!(second, [jobs[1].clone(), jobs[0].clone()]);
    let (other, _) = changed(&world, version).await;
    assert_eq!(other, second, "a job that changed twice is told once");
}

/// What changes while the pages are read is on a page or among the changes since the reading began.
pub async fn nothing_is_missed_beside_a_reading(world: World) {
    let (term, jobs, version) = read(&world, &["a"]).await;
    let late = world.job(&term, "late").await;
    world.store.pause(&jobs[0], "ann", "").await.expect("pause");
    let (told, _) = changed(&world, version).await;
    assert_eq!(told, [late, jobs[0].clone()]);
}

/// Every write of somebody else that a leader's decisions hang on is a change.
pub async fn every_hold_is_a_change(world: World) {
    let store = &world.store;
    let (term, jobs, mut version) = read(&world, &["j"]).await;
    let job = &jobs[0];
    let mut next = async |what: &str| {
        let (told, after) = changed(&world, version).await;
        assert_eq!(told, std::slice::from_ref(job), "{what}");
        version = after;
    };
    let running = world.running(&term, job, 1, &term.pod).await;
    world.expire(&running).await;
    let loss = Loss {
        digest: None,
        state: RunState::Lost,
        reason: "poison".into(),
        quarantine: true,
        retention: keep(),
    };
    let seen = Seen::Running(running.at.fence);
    let lost = store.lose(&term, &running.at.run, seen, &loss).await;
    assert_eq!(lost.expect("lose"), Losing::Lost);
    next("quarantine").await;
    store.release(job, "ann").await.expect("release");
    next("release").await;
    store.pause(job, "ann", "").await.expect("pause");
    next("pause").await;
    store.resume(job, "ann").await.expect("resume");
    next("resume").await;
    let mut definition = definition();
    let was = definition.hash();
    definition.exclusive = true;
    let second = stored(definition, world.at(10));
    let opened = store.open(&term, job, Some(&was), &second).await;
    assert!(matches!(opened, Ok(Opened::Opened { .. })), "{opened:?}");
    next("open").await;
    store.retire(&term, job).await.expect("retire");
    next("retire").await;
    assert_eq!(store.jobs(&jobs).await.expect("jobs"), [None]);
}

/// What the leader itself published and wrote down is no change, and neither is what changes nothing.
pub async fn a_leaders_own_decisions_are_no_changes(world: World) {
    let store = &world.store;
    let (term, jobs, version) = read(&world, &["j"]).await;
    let job = &jobs[0];
    world.fire(&term, job, 1, &term.pod).await;
    let gap = world.gap(job, 2, 5, "misfire");
    let answers = world.publish(&term, &[gap]).await;
    assert_eq!(answers, [Published::Published]);
    let waiting = Waiting {
        since: world.at(6),
        why: "no live pod".into(),
    };
    let written = store.set_waiting(&term, job, Some(&waiting)).await;
    written.expect("set_waiting");
    let unchanged = store.resume(job, "ann").await.expect("resume");
    assert_eq!(unchanged, Operated::Unchanged);
    let unchanged = store.release(job, "ann").await.expect("release");
    assert_eq!(unchanged, Operated::Unchanged);
    assert_eq!(changed(&world, version).await, (vec![], version));
}

/// More changes than one answer holds come in several, in the order in which they were made.
pub async fn many_changes_come_in_pages(world: World) {
    let (term, _, mut version) = read(&world, &["j"]).await;
    let mut names = Vec::new();
    for n in 0..PAGE_MAX + 5 {
        names.push(world.job(&term, &format!("job-{n:04}")).await);
    }
    let mut told = Vec::new();
    loop {
        let (jobs, next) = changed(&world, version).await;
        let full = jobs.len() == PAGE_MAX;
        told.extend(jobs);
        version = next;
        if !full {
            break;
        }
    }
    assert_eq!(told, names);
    let views = world.store.jobs(&names).await.expect("jobs");
    let found: Vec<JobName> = views.into_iter().flatten().map(|view| view.job).collect();
    assert_eq!(found, names);
}

/// A store that lost everything knows no version from before, whatever came into it since.
pub async fn after_a_loss_everything_is_read(world: World) {
    let (_, _, version) = read(&world, &["a", "b"]).await;
    world.damage(Damage::AllLost).await;
    everything(&world, Some(version)).await;
    world.pass(Duration::from_millis(20)).await;
    let (_, _, next) = read(&world, &["a", "b"]).await;
    assert!(next > version, "no number is given twice");
    everything(&world, Some(version)).await;
    assert_eq!(changed(&world, next).await, (vec![], next));
}

/// A version that the store has yet to reach is one that it lost.
pub async fn a_version_from_the_future_is_not_known(world: World) {
    let (_, _, ViewVersion(version)) = read(&world, &["a"]).await;
    let same = everything(&world, Some(ViewVersion(version + 1))).await;
    assert_eq!(same, ViewVersion(version));
}

/// Jobs are read by name, in the order asked for, as each is alone.
pub async fn jobs_are_read_by_name(world: World) {
    let store = &world.store;
    let (_, jobs, _) = read(&world, &["a", "b"]).await;
    store.pause(&jobs[0], "ann", "why").await.expect("pause");
    let asked = [jobs[1].clone(), world.name("none"), jobs[0].clone()];
    let mut alone = Vec::new();
    for job in &asked {
        alone.push(store.job(job).await.expect("job"));
    }
    assert_eq!(store.jobs(&asked).await.expect("jobs"), alone);
    assert_eq!(store.jobs(&[]).await.expect("jobs"), []);
}
