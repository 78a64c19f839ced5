//! A job's whole life, told once from its beginning to its end.

use wasmcron_core::run::{Outcome, RunState};
use wasmcron_core::task::Reason;
use wasmcron_store::inspect::Counts;
use wasmcron_store::runs::{Finished, StateWrite};

use super::World;

/// Register, open, publish, take, claim, save, finish; and what is left of it afterwards.
pub async fn from_registration_to_success(world: World) {
    let store = &world.store;
    let pod = world.pod("[fd00::1]:8080").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "sync").await;
    let run = world.fire(&term, &job, 7, &pod).await;
    assert_eq!(world.cursor(&job).await, world.at(7));
    assert_eq!(world.state(&run).await, RunState::Scheduled);

    let running = world.begin(&pod).await;
    let mut task = world.task(&job, 7);
    task.subscriber_queue = running.attempt.task.subscriber_queue.clone();
    assert_eq!(running.attempt.task, task, "the task as it was published");
    assert!(
        task.subscriber_queue
            .is_some_and(|queue| queue.ends_with("[fd00::1]:8080"))
    );
    assert_eq!(running.attempt.checkpoint, None);
    assert_eq!(running.attempt.previous_success, None);
    assert_eq!(world.state(&run).await, RunState::Running);

    running.save(&world, 1, b"\0\xff|").await;
    let mut finish = running.success();
    finish.state = vec![StateWrite {
        key: "cursor".into(),
        value: Some(b"\xff|1".to_vec()),
    }];
    assert_eq!(
        store.finish(&finish).await.expect("finish"),
        Finished::Finished
    );

    let record = world.record(&run).await;
    assert_eq!(record.state, RunState::Succeeded);
    assert_eq!((record.job, record.nominal), (job.clone(), world.at(7)));
    assert_eq!(record.reason, Reason::Scheduled);
    assert_eq!(record.params, task.params);
    let [attempt] = record.attempts.as_slice() else {
        panic!("one attempt: {:?}", record.attempts);
    };
    assert_eq!((attempt.attempt, &attempt.pod), (1, &pod.address));
    assert_eq!(attempt.fence, running.at.fence);
    assert!(
        matches!(&attempt.outcome, Some(Outcome::Succeeded { summary }) if summary == "all|done")
    );
    assert!(attempt.ended_at >= Some(attempt.claimed_at));
    let state = store.get_state(&job, "cursor").await.expect("get_state");
    assert_eq!(state.as_deref(), Some(b"\xff|1".as_slice()));
    assert_eq!(store.checkpoint(&run).await.expect("checkpoint"), None);

    let view = store.job(&job).await.expect("job").expect("a view");
    assert_eq!((view.active, view.successes.count), (None, 1));
    let counts = store.counts().await.expect("counts");
    let jobs = Counts {
        jobs: 1,
        ..Counts::default()
    };
    assert_eq!(counts, jobs, "nothing is left in a register");
    let next = world.running(&term, &job, 8, &pod).await;
    assert_eq!(next.attempt.previous_success, Some(world.at(7)));
    assert!(next.at.fence > running.at.fence);
}
