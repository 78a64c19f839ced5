//! Runs that wait for their time: asked for by hand, tried again, continued, given back.

use std::time::Duration;

use wasmcron_core::ids::{JobName, PodRef, RunId};
use wasmcron_core::run::RunState;
use wasmcron_core::task::{Reason, Task};
use wasmcron_store::leadership::TermRef;
use wasmcron_store::recovery::{Losing, Loss};
use wasmcron_store::runs::Finished;
use wasmcron_store::schedule::{
    DueDelayed, IdempotencyKey, PromoteAnswer, Promoted, Submission, Submitted,
};

use super::world::{LONG, World, keep};

impl World {
    /// A run that somebody asks for; each has an id of its own.
    #[must_use]
    pub fn manual(&self, job: &JobName) -> Submission {
        let id = format!("{job}@01JDX{:021}", self.number());
        let run: RunId = id.parse().expect("a run id");
        let task = Task::first(run, self.at(0), Reason::Manual, "{\"by\":\"hand\"}".into());
        Submission {
            task,
            idempotency: None,
        }
    }

    /// Asks for a run that must be accepted.
    pub async fn submitted(&self, submission: &Submission) -> RunId {
        let answer = self.store.submit(submission).await.expect("submit");
        let run = submission.task.run.clone();
        assert_eq!(answer, Submitted::Accepted { run: run.clone() });
        run
    }

    /// Moves due runs into queues, and answers what became of each.
    pub async fn promote(&self, term: &TermRef, moves: &[(&RunId, &PodRef)]) -> Vec<Promoted> {
        let moves: Vec<_> = moves
            .iter()
            .map(|(run, pod)| ((*run).clone(), pod.address.clone()))
            .collect();
        match self.store.promote(term, &moves).await {
            Ok(PromoteAnswer::Answers(answers)) => answers,
            other => panic!("promote: {other:?}"),
        }
    }

    /// Moves one due run that must go.
    pub async fn promoted(&self, term: &TermRef, run: &RunId, to: &PodRef) {
        assert_eq!(
            self.promote(term, &[(run, to)]).await,
            [Promoted::Promoted],
            "{run}"
        );
    }

    /// What is due.
    pub async fn due(&self, limit: usize) -> DueDelayed {
        self.store.due_delayed(limit).await.expect("due_delayed")
    }

    /// Asserts that these runs are due and no others, in this order.
    pub async fn due_is(&self, runs: &[&RunId]) {
        let due = self.due_runs(10).await;
        assert_eq!(due.iter().collect::<Vec<_>>(), runs, "what is due");
    }

    /// The runs among what is due.
    pub async fn due_runs(&self, limit: usize) -> Vec<RunId> {
        self.due(limit)
            .await
            .entries
            .into_iter()
            .map(|entry| entry.task.run)
            .collect()
    }
}

/// A run asked for by hand is due at once, goes to a pod and executes with its parameters.
pub async fn a_manual_run_is_due_at_once(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let submission = world.manual(&job);
    let run = world.submitted(&submission).await;
    assert_eq!(world.state(&run).await, RunState::Delayed);
    world.due_is(&[&run]).await;
    world.promoted(&term, &run, &pod).await;
    world.due_is(&[]).await;
    assert_eq!(world.store.delayed(&run).await.expect("delayed"), None);
    let running = world.begin(&pod).await;
    assert_eq!(running.attempt.task.params, submission.task.params);
    assert_eq!(running.attempt.task.reason, Reason::Manual);
    assert_eq!(
        world.cursor(&job).await,
        world.at(0),
        "the schedule does not notice"
    );
}

/// The answer to a request was lost: the same id, or the same key, is the same request.
pub async fn a_repeated_request_makes_one_run(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let mut first = world.manual(&job);
    first.idempotency = Some(IdempotencyKey {
        key: "k 1:{x}".into(),
        body: "abc".into(),
    });
    let run = world.submitted(&first).await;
    let same = Submitted::Same { run: run.clone() };
    assert_eq!(world.store.submit(&first).await.expect("submit"), same);
    let mut second = world.manual(&job);
    second.idempotency.clone_from(&first.idempotency);
    assert_eq!(world.store.submit(&second).await.expect("submit"), same);
    second.idempotency = Some(IdempotencyKey {
        key: "k 1:{x}".into(),
        body: "other".into(),
    });
    let answer = world.store.submit(&second).await.expect("submit");
    assert_eq!(answer, Submitted::Conflict { run: run.clone() });
    first.idempotency = None;
    assert_eq!(
        world.store.submit(&first).await.expect("submit"),
        same,
        "by its id"
    );
    world.due_is(&[&run]).await;
}

/// Nobody can ask for a run of a job that is not there.
pub async fn an_unknown_job_has_no_runs(world: World) {
    let answer = world.store.submit(&world.manual(&world.name("j"))).await;
    assert_eq!(answer.expect("submit"), Submitted::UnknownJob);
}

/// A past nominal time can be asked for; a future one is the schedule's, and an existing one stays.
pub async fn a_backfill_ends_at_the_cursor(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world
        .publish(&term, &[world.gap(&job, 1, 8, "misfire")])
        .await;
    let existing = world.fire(&term, &job, 9, &pod).await;
    let ask = |seconds| {
        let mut task = world.task(&job, seconds);
        task.reason = Reason::Backfill;
        Submission {
            task,
            idempotency: None,
        }
    };
    let run = world.submitted(&ask(4)).await;
    world.due_is(&[&run]).await;
    let cursor = world.at(9);
    let answer = world.store.submit(&ask(10)).await.expect("submit");
    assert_eq!(answer, Submitted::NotYet { cursor });
    for seconds in [4, 9] {
        let answer = world.store.submit(&ask(seconds)).await.expect("submit");
        assert_eq!(answer, Submitted::Exists, "{seconds}");
    }
    let mut again = ask(9);
    again.task.run = existing.again(2);
    again.task.of = Some(existing.clone());
    let run = world.submitted(&again).await;
    assert_eq!(world.record(&run).await.of, Some(existing));
}

/// What is due comes first, earliest first; what is not due yet says when.
pub async fn the_earliest_is_due_first(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let mut waits = Vec::new();
    for (name, due_in) in [("j", Duration::ZERO), ("k", LONG), ("l", LONG * 2)] {
        let job = world.job(&term, name).await;
        let running = world.running(&term, &job, 1, &pod).await;
        world
            .store
            .finish(&running.retry(due_in))
            .await
            .expect("finish");
        waits.push(running.at.run);
    }
    let due = world.due(10).await;
    assert_eq!(due.entries.len(), 1);
    assert_eq!(due.entries[0].task.run, waits[0]);
    let entry = world
        .store
        .delayed(&waits[1])
        .await
        .expect("delayed")
        .expect("it waits");
    assert_eq!(
        (due.next, entry.why.as_str()),
        (entry.due, "it failed|once")
    );
    assert!(due.next > Some(due.now));
    let early = world.promote(&term, &[(&waits[1], &pod)]).await;
    assert_eq!(early, [Promoted::Changed], "not due yet");

    // Runs that are due at the same time have no order.
    world.pass(Duration::from_millis(2)).await;
    let job = world.name("j");
    let asked = [
        world.submitted(&world.manual(&job)).await,
        world.submitted(&world.manual(&job)).await,
    ];
    assert_eq!(world.due_runs(2).await.len(), 2);
    assert_eq!(world.due_runs(1).await, [waits[0].clone()]);
    let mut all = world.due_runs(10).await;
    all.sort();
    let mut wanted = vec![waits[0].clone(), asked[0].clone(), asked[1].clone()];
    wanted.sort();
    assert_eq!(all, wanted);
}

/// The answer to a promotion was lost: the run is where the first call put it, once.
pub async fn a_repeated_promotion_moves_once(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let run = world.submitted(&world.manual(&job)).await;
    world.promoted(&term, &run, &pod).await;
    world.promoted(&term, &run, &pod).await;
    let running = world.begin(&pod).await;
    let late = world.promote(&term, &[(&run, &pod)]).await;
    assert_eq!(late, [Promoted::Changed]);
    world
        .store
        .finish(&running.success())
        .await
        .expect("finish");
    let late = world.promote(&term, &[(&run, &pod)]).await;
    assert_eq!(late, [Promoted::Changed], "over");
}

/// A target that is gone leaves the run due, beside one that goes.
pub async fn a_promotion_needs_a_live_pod(world: World) {
    let (pod, gone) = (world.pod("a").await, world.session("gone"));
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let stays = world.submitted(&world.manual(&job)).await;
    let goes = world.submitted(&world.manual(&job)).await;
    let answers = world
        .promote(&term, &[(&stays, &gone), (&goes, &pod)])
        .await;
    assert_eq!(answers, [Promoted::NoPod, Promoted::Promoted]);
    world.due_is(&[&stays]).await;
}

/// Runs that nobody can take do not stand in front of those that can go.
pub async fn a_stuck_run_is_put_off(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let mut stuck = Vec::new();
    for _ in 0..3 {
        stuck.push(world.submitted(&world.manual(&job)).await);
    }
    world.pass(Duration::from_millis(2)).await;
    let goes = world.submitted(&world.manual(&job)).await;
    assert!(
        !world.due_runs(3).await.contains(&goes),
        "a page full of others"
    );
    for run in &stuck {
        let explained = world
            .store
            .explain_delayed(&term, run, "no|pod", LONG)
            .await;
        explained.expect("explain_delayed");
    }
    let due = world.due(3).await;
    assert_eq!(due.entries.len(), 1);
    assert_eq!(due.entries[0].task.run, goes);
    let entry = world
        .store
        .delayed(&stuck[0])
        .await
        .expect("delayed")
        .expect("it waits");
    assert_eq!(entry.why, "no|pod");
    assert!(entry.due > Some(due.now + LONG / 2));
    assert!(due.next.is_some_and(|next| next > due.now + LONG / 2));
    let early = world.promote(&term, &[(&stuck[0], &pod)]).await;
    assert_eq!(early, [Promoted::Changed]);
}

/// Put off for a moment, a run is due again by itself; saying the same of it again puts it off again.
pub async fn a_run_put_off_comes_back(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let run = world.submitted(&world.manual(&job)).await;
    for look_again_in in [Duration::from_millis(30), Duration::from_millis(20)] {
        let explained = world
            .store
            .explain_delayed(&term, &run, "why", look_again_in)
            .await;
        explained.expect("explain_delayed");
        world
            .until("the run to be due again", async || {
                (world.due_runs(1).await == [run.clone()]).then_some(())
            })
            .await;
    }
    world.promoted(&term, &run, &pod).await;
}

/// A run that waits for another, or for a later time, keeps its time whatever is said of it.
pub async fn only_a_due_run_is_put_off(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let holder = world.running(&term, &job, 1, &pod).await;
    world.fire(&term, &job, 2, &pod).await;
    let taken = world.take_one(&pod).await;
    world.store.park(&pod, &taken, 1).await.expect("park");
    let soon = Duration::from_millis(1);
    let explained = world
        .store
        .explain_delayed(&term, &taken.run, "parked", soon)
        .await;
    explained.expect("explain_delayed");
    assert_eq!(world.state(&taken.run).await, RunState::Parked);
    world
        .store
        .finish(&holder.retry(LONG))
        .await
        .expect("finish");
    let before = world
        .store
        .delayed(&holder.at.run)
        .await
        .expect("delayed")
        .expect("it waits");
    let explained = world
        .store
        .explain_delayed(&term, &holder.at.run, "x", soon)
        .await;
    explained.expect("explain_delayed");
    let after = world
        .store
        .delayed(&holder.at.run)
        .await
        .expect("delayed")
        .expect("it waits");
    assert_eq!((after.due, after.why.as_str()), (before.due, "x"));
    world.pass(soon * 5).await;
    world.due_is(&[]).await;
}

/// Backfilled runs go one by one, in the order of their times, whatever the order of the requests.
pub async fn backfilled_runs_take_turns(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world
        .publish(&term, &[world.gap(&job, 1, 9, "misfire")])
        .await;
    for seconds in [1, 7, 3] {
        let mut task = world.task(&job, seconds);
        task.reason = Reason::Backfill;
        let submission = Submission {
            task,
            idempotency: None,
        };
        world.submitted(&submission).await;
    }
    let view = store.job(&job).await.expect("job").expect("a view");
    assert_eq!(view.active, Some(world.run(&job, 1)));
    for seconds in [1, 3, 7] {
        let run = world.run(&job, seconds);
        world.due_is(&[&run]).await;
        world.promoted(&term, &run, &pod).await;
        let running = world.begin(&pod).await;
        world.due_is(&[]).await;
        let finished = store.finish(&running.success()).await;
        assert_eq!(finished.expect("finish"), Finished::Finished);
    }
}

/// A due run that waits is given up once, whoever waits for it goes on; one that is parked, executes or
/// is over is left alone.
pub async fn a_run_that_waits_is_given_up(world: World) {
    let store = &world.store;
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    let give_up = async |run: &RunId| {
        let loss = Loss {
            state: RunState::TimedOut,
            reason: "too|late".into(),
            quarantine: false,
            digest: None,
            retention: keep(),
        };
        store.give_up(&term, run, &loss).await.expect("give_up")
    };
    let running = world.running(&term, &job, 1, &pod).await;
    let run = running.at.run.clone();
    assert_eq!(give_up(&run).await, Losing::Changed, "it executes");
    let behind = world.fire(&term, &job, 2, &pod).await;
    let taken = world.take_one(&pod).await;
    store.park(&pod, &taken, 1).await.expect("park");
    assert_eq!(give_up(&behind).await, Losing::Changed, "it is parked");
    let finished = store.finish(&running.retry(LONG)).await;
    assert_eq!(finished.expect("finish"), Finished::Finished);
    assert_eq!(give_up(&run).await, Losing::Changed, "it is not due");
    world.due_is(&[]).await;

    let job = world.job(&term, "k").await;
    let running = world.running(&term, &job, 1, &pod).await;
    let run = running.at.run.clone();
    let behind = world.fire(&term, &job, 2, &pod).await;
    let taken = world.take_one(&pod).await;
    store.park(&pod, &taken, 1).await.expect("park");
    store.finish(&running.yields(0)).await.expect("finish");
    world.due_is(&[&run]).await;
    assert_eq!(give_up(&run).await, Losing::Lost);
    assert_eq!(give_up(&run).await, Losing::Lost, "the same request again");
    let record = world.record(&run).await;
    assert_eq!(record.state, RunState::TimedOut);
    assert_eq!(record.why.as_deref(), Some("too|late"));
    world.due_is(&[&behind]).await;
    world.depose(&term).await;
    assert_eq!(give_up(&behind).await, Losing::NotLeader);
}
