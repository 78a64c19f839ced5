//! What people and tools read.

use wasmcron_core::run::RunState;
use wasmcron_store::inspect::Counts;

use super::world::World;

/// What happened is told in its order, in pages.
pub async fn the_execution_log_tells_what_happened(world: World) {
    let store = &world.store;
    let before = world.now().await;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let running = world.running(&term, &job, 1, &pod).await;
    running.save(&world, 1, b"x").await;
    store.finish(&running.success()).await.expect("finish");
    let (mut events, mut after) = (Vec::new(), None);
    loop {
        let page = store
            .execution_log(after.as_deref(), 2)
            .await
            .expect("execution_log");
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        events.extend(page);
    }
    let names: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
    let wanted = [
        "leader.won",
        "job.opened",
        "run.published",
        "run.claimed",
        "checkpoint.saved",
        "run.finished",
    ];
    assert_eq!(names, wanted);
    assert!(events.iter().all(|event| event.at >= before));
    let claimed = &events[3];
    assert_eq!(
        (claimed.job.as_str(), claimed.run.as_str()),
        ("j", running.at.run.as_str())
    );
    let fact = |name: &str| {
        let mut found = claimed.fields.iter().filter(|(field, _)| field == name);
        found.next().map(|(_, value)| value.clone())
    };
    assert_eq!(fact("pod").as_deref(), Some("a"));
    assert_eq!(fact("fence"), Some(running.at.fence.to_string()));
}

/// A job's runs come newest first, as many as asked for.
pub async fn the_newest_runs_come_first(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let mut wanted = Vec::new();
    for seconds in 1..=4 {
        wanted.insert(0, world.fire(&term, &job, seconds, &pod).await);
        world.pass(std::time::Duration::from_millis(2)).await;
    }
    let runs = async |limit| {
        let runs = world.store.runs(&job, limit).await.expect("runs");
        runs.into_iter()
            .map(|record| record.run)
            .collect::<Vec<_>>()
    };
    assert_eq!(runs(10).await, wanted);
    assert_eq!(runs(2).await, wanted[..2]);
}

/// Every register is counted.
pub async fn registers_are_counted(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let (j, k) = (world.job(&term, "j").await, world.job(&term, "k").await);
    world.running(&term, &j, 1, &pod).await;
    world.fire(&term, &k, 1, &pod).await;
    world.fire(&term, &k, 2, &pod).await;
    world.submitted(&world.manual(&k)).await;
    let counts = world.store.counts().await.expect("counts");
    let wanted = Counts {
        jobs: 2,
        scheduled: 2,
        running: 1,
        delayed: 1,
        dead_letters: 0,
    };
    assert_eq!(counts, wanted);
}

/// What is not there is none, not an error.
pub async fn what_is_not_there_is_none(world: World) {
    let store = &world.store;
    let job = world.name("j");
    let run = world.run(&job, 1);
    assert_eq!(store.run(&run).await.expect("run"), None);
    assert_eq!(store.runs(&job, 10).await.expect("runs"), []);
    assert_eq!(store.delayed(&run).await.expect("delayed"), None);
    assert_eq!(store.gaps(&job, 10).await.expect("gaps"), []);
    assert_eq!(store.checkpoint(&run).await.expect("checkpoint"), None);
    assert_eq!(store.log(&run, None, 10).await.expect("log").lines, []);
    assert_eq!(
        store.execution_log(None, 10).await.expect("execution_log"),
        []
    );
    assert_eq!(store.counts().await.expect("counts"), Counts::default());
    assert_eq!(store.get_state(&job, "k").await.expect("get_state"), None);
    assert_eq!(store.pods().await.expect("pods"), []);
    assert_eq!(store.locks(&[job]).await.expect("locks"), [None]);
    assert_eq!(store.recoveries(&[run]).await.expect("recoveries"), [0]);
}

/// A record follows its run through all places.
pub async fn a_record_follows_its_run(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let submission = world.manual(&job);
    let run = world.submitted(&submission).await;
    let mut states = vec![world.state(&run).await];
    world.promoted(&term, &run, &pod).await;
    states.push(world.state(&run).await);
    let running = world.begin(&pod).await;
    states.push(world.state(&run).await);
    world
        .store
        .finish(&running.success())
        .await
        .expect("finish");
    states.push(world.state(&run).await);
    use RunState::{Delayed, Running, Scheduled, Succeeded};
    assert_eq!(states, [Delayed, Scheduled, Running, Succeeded]);
    let record = world.record(&run).await;
    assert_eq!(record.why.as_deref(), Some("all|done"));
    assert_eq!(record.params, submission.task.params);
    assert!(record.ended_at >= Some(record.created_at));
}
