//! Schedules of crashes, lost replies and late requests that broke an earlier draft of the protocol,
//! cut down to the verbs. Each is named after the rule that mends it.

use std::time::Duration;

use wasmcron_core::ids::{JobName, PodRef};
use wasmcron_core::run::RunState;
use wasmcron_core::task::Reason;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::queue::{Claimed, Hold, Moved, Parked};
use wasmcron_store::recovery::{Losing, Republished, Seen};
use wasmcron_store::runs::{Extension, Finished};
use wasmcron_store::schedule::{Opened, Operated, PublishAnswer, Published, Submission, Submitted};

use super::world::{LONG, Running, World, definition, stored};

/// Pods `a` and `b`, `b` leading, and a job.
async fn scene(world: &World) -> (PodRef, PodRef, TermRef, JobName) {
    let (a, b) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&b).await;
    let job = world.job(&term, "j").await;
    (a, b, term, job)
}

/// The answer to a claim is lost, and the pod asks again: it has the attempt, so no run ends lost
/// whose guest never started.
pub async fn claim_by_token(world: World) {
    let (a, _, term, job) = scene(&world).await;
    world.fire(&term, &job, 1, &a).await;
    let claim = world.claim_of(&a, &world.take_one(&a).await);
    let lost_answer = world.claimed(claim.clone()).await;
    let running = world.claimed(claim).await;
    assert_eq!(running.at.fence, lost_answer.at.fence);
    let attempts = std::slice::from_ref(&running.at);
    let extended = world.store.extend(&a, attempts, LONG).await;
    assert_eq!(extended.expect("extend"), [Extension::Extended]);
}

/// The repeated claim of a pod that stood still comes when hardly any lock is left, or none: the
/// attempt has its whole length again.
pub async fn a_repeated_claim_renews_the_lock(world: World) {
    let (a, b, term, job) = scene(&world).await;
    world.fire(&term, &job, 1, &a).await;
    let mut claim = world.claim_of(&a, &world.take_one(&a).await);
    let first = world.claimed(claim.clone()).await;
    world.expire(&first).await;
    let again = world.claimed(claim.clone()).await;
    assert_eq!(again.attempt, first.attempt);
    let locks = world
        .store
        .locks(std::slice::from_ref(&job))
        .await
        .expect("locks");
    assert!(
        locks[0]
            .as_ref()
            .is_some_and(|lock| lock.expires_in > LONG / 2)
    );
    let seen = Seen::Running(first.at.fence);
    let moved = world.republish(&term, &first.at.run, seen, &b).await;
    assert_eq!(moved, Republished::Alive);

    // But once the run was taken over, the repeat gets nothing back.
    world.expire(&first).await;
    let moved = world.republish(&term, &first.at.run, seen, &b).await;
    assert_eq!(moved, Republished::Republished);
    assert_eq!(
        world.store.claim(&claim).await.expect("claim"),
        Claimed::Stale
    );
    world.begin(&b).await;
    claim.lock_ttl = LONG;
    assert_eq!(
        world.store.claim(&claim).await.expect("claim"),
        Claimed::Stale
    );
}

/// A task whose claim has no answer cannot be given back unclaimed: that is refused, and the repeated
/// claim tells what it is.
pub async fn a_claim_is_settled_before_a_hand_back(world: World) {
    let (a, _, term, job) = scene(&world).await;
    world.fire(&term, &job, 1, &a).await;
    let claim = world.claim_of(&a, &world.take_one(&a).await);
    let lost_answer = world.claimed(claim.clone()).await;
    let unclaimed = Hold::Delivery(claim.taken.delivery);
    let back = world.back(&a, &claim.taken.run, unclaimed);
    let moved = world.store.hand_back(&back).await.expect("hand_back");
    assert_eq!(moved, Moved::Changed);
    world.store.leave(&a).await.expect("leave");
    let settled = world.claimed(claim).await;
    assert_eq!(settled.at.fence, lost_answer.at.fence);
    let finished = world.store.finish(&settled.yields(0)).await;
    assert_eq!(finished.expect("finish"), Finished::Finished);
    world.due_is(&[&settled.at.run]).await;
}

/// Between its attempts a run keeps its place: what overlaps it waits or is skipped, and never makes
/// the half-done run a skipped one.
pub async fn a_run_is_active_until_it_ends(world: World) {
    let (a, b, term, job) = scene(&world).await;
    let first = world.running(&term, &job, 1, &a).await;
    world
        .store
        .finish(&first.retry(Duration::ZERO))
        .await
        .expect("finish");
    world.fire(&term, &job, 2, &b).await;
    let later = world.claim_of(&b, &world.take_one(&b).await);
    let overlap = Claimed::Overlap {
        holder: first.at.run.clone(),
    };
    let refused = async || world.store.claim(&later).await.expect("claim");
    assert_eq!(refused().await, overlap, "in its back-off");
    world.promoted(&term, &first.at.run, &a).await;
    assert_eq!(refused().await, overlap, "in a queue");
    let second: Running = world.begin(&a).await;
    assert_eq!(refused().await, overlap, "executing");
    world.expire(&second).await;
    assert_eq!(refused().await, overlap, "without a lock");
    let seen = Seen::Running(second.at.fence);
    world.republish(&term, &first.at.run, seen, &a).await;
    assert_eq!(refused().await, overlap, "in recovery");
    let third = world.begin(&a).await;
    world.store.finish(&third.success()).await.expect("finish");
    world.claimed(later).await;
}

/// Two processes of one address: the term of the one is not the other's, whichever leads.
pub async fn the_holder_is_part_of_the_term(world: World) {
    let old = world.pod("a").await;
    let before = world.lead(&old).await;
    let job = world.job(&before, "j").await;
    world.depose(&before).await;
    let new = world.pod("a").await;
    let after = world.lead(&new).await;
    let thawed = TermRef {
        pod: old,
        term: after.term,
    };
    for term in [&before, &thawed] {
        let firing = world.firing(&job, 1, &new);
        let answer = world.store.publish(term, &[firing]).await.expect("publish");
        assert_eq!(answer, PublishAnswer::NotLeader);
    }
    world.fire(&after, &job, 1, &new).await;
}

/// A recoverer decides from what it saw; meanwhile the task was claimed: the live attempt stays.
pub async fn a_republish_names_what_it_saw(world: World) {
    let (a, b, term, job) = scene(&world).await;
    let run = world.fire(&term, &job, 1, &a).await;
    let first = world.take_one(&a).await;
    let seen = Seen::Scheduled(first.delivery);
    assert_eq!(
        world.republish(&term, &run, seen, &b).await,
        Republished::Republished
    );
    let running = world.begin(&b).await;
    let now_seen = Seen::Scheduled(running.claim.taken.delivery);
    for seen in [seen, now_seen] {
        assert_eq!(
            world.republish(&term, &run, seen, &a).await,
            Republished::Changed
        );
        assert_eq!(world.lose(&term, &run, seen).await, Losing::Changed);
    }
    let finished = world.store.finish(&running.success()).await;
    assert_eq!(finished.expect("finish"), Finished::Finished);
}

/// A backfill ahead of the cursor is left to the schedule, so no firing overwrites an ended run.
pub async fn a_backfill_never_meets_a_firing(world: World) {
    let (a, _, term, job) = scene(&world).await;
    let mut task = world.task(&job, 1);
    task.reason = Reason::Backfill;
    let ahead = Submission {
        task,
        idempotency: None,
    };
    let answer = world.store.submit(&ahead).await.expect("submit");
    assert_eq!(
        answer,
        Submitted::NotYet {
            cursor: world.at(0)
        }
    );
    let running = world.running(&term, &job, 1, &a).await;
    world
        .store
        .finish(&running.success())
        .await
        .expect("finish");
    let answer = world.store.submit(&ahead).await.expect("submit");
    assert_eq!(answer, Submitted::Exists);
    assert_eq!(world.state(&running.at.run).await, RunState::Succeeded);
}

/// A leader opens a job and stops before it fires; its successor, to whom the job looks new, gets
/// the same beginning, and the first firing is not skipped.
pub async fn a_new_job_begins_where_it_was_opened(world: World) {
    let (a, b, term, _) = scene(&world).await;
    let job = world.name("d");
    let first = stored(definition(), world.at(0));
    let opened = world.store.open(&term, &job, None, &first).await;
    assert_eq!(
        opened.expect("open"),
        Opened::Opened {
            cursor: world.at(0)
        }
    );
    world.depose(&term).await;
    let next = world.lead(&a).await;
    let later = stored(definition(), world.at(30));
    let opened = world.store.open(&next, &job, None, &later).await;
    assert_eq!(opened.expect("open"), Opened::Changed, "not from now");
    assert_eq!(world.cursor(&job).await, world.at(0));
    world.fire(&next, &job, 20, &b).await;
}

/// One batch, the first decision refused: the second is held, or the first would be deduped for ever.
pub async fn decisions_of_a_job_keep_their_order(world: World) {
    let (a, _, term, job) = scene(&world).await;
    let gone = world.pod("c").await;
    world.store.leave(&gone).await.expect("leave");
    let batch = [world.firing(&job, 1, &gone), world.firing(&job, 2, &a)];
    let held = Published::Held {
        cursor: world.at(0),
    };
    assert_eq!(world.publish(&term, &batch).await, [Published::NoPod, held]);
    let batch = [world.firing(&job, 1, &a), world.firing(&job, 2, &a)];
    assert_eq!(
        world.publish(&term, &batch).await,
        [Published::Published; 2]
    );
}

/// The first request of a claim arrives after its repeat was served and the attempt failed: it does
/// not take the retry's entry.
pub async fn a_late_claim_does_not_take_the_retry(world: World) {
    let (a, _, term, job) = scene(&world).await;
    world.fire(&term, &job, 1, &a).await;
    let claim = world.claim_of(&a, &world.take_one(&a).await);
    let running = world.claimed(claim.clone()).await;
    world
        .store
        .finish(&running.retry(Duration::ZERO))
        .await
        .expect("finish");
    let late = async || world.store.claim(&claim).await.expect("claim");
    assert_eq!(late().await, Claimed::Stale, "delayed");
    world.promoted(&term, &running.at.run, &a).await;
    assert_eq!(late().await, Claimed::Stale, "in the same pod's queue");
    let retry = world.begin(&a).await;
    assert_eq!(retry.attempt.task.attempt, 2);
    assert_eq!(late().await, Claimed::Stale, "executing");
}

/// The reply to a take reaches nobody: the entry is found among what the pod did not claim.
pub async fn what_was_taken_for_nobody_is_found(world: World) {
    let (a, _, term, job) = scene(&world).await;
    let run = world.fire(&term, &job, 1, &a).await;
    drop(world.take(&a).await);
    assert!(world.take(&a).await.is_empty(), "gone from the queue");
    let claiming = world.store.claiming(&a).await.expect("claiming");
    assert_eq!(claiming.len(), 1);
    let running = world.claimed(world.claim_of(&a, &claiming[0])).await;
    assert_eq!(running.at.run, run);
}

/// A retry leaves by promotion: publishing its firing again is deduped and does not move it.
pub async fn a_retry_is_promoted(world: World) {
    let (a, b, term, job) = scene(&world).await;
    let first = world.running(&term, &job, 1, &a).await;
    world
        .store
        .finish(&first.retry(Duration::ZERO))
        .await
        .expect("finish");
    let answers = world.publish(&term, &[world.firing(&job, 1, &b)]).await;
    assert_eq!(
        answers,
        [Published::Deduped {
            cursor: world.at(1)
        }]
    );
    assert!(world.take(&b).await.is_empty());
    world.promoted(&term, &first.at.run, &b).await;
    assert_eq!(world.begin(&b).await.attempt.task.attempt, 2);
}

/// A pause that was acknowledged holds, whatever copy of the job the leader has.
pub async fn an_acknowledged_pause_holds(world: World) {
    let (a, _, term, job) = scene(&world).await;
    let view = world.store.job(&job).await.expect("job").expect("a view");
    let paused = world.store.pause(&job, "ann", "").await.expect("pause");
    assert_eq!((view.paused, paused), (None, Operated::Done));
    let batch = [world.firing(&job, 1, &a), world.firing(&job, 2, &a)];
    let held = Published::Held {
        cursor: world.at(0),
    };
    assert_eq!(
        world.publish(&term, &batch).await,
        [Published::Paused, held]
    );
    assert!(world.take(&a).await.is_empty());
}

/// A finish that was applied and is repeated is no fenced success.
pub async fn a_repeated_finish_is_no_fence(world: World) {
    let (a, b, term, job) = scene(&world).await;
    let running = world.running(&term, &job, 1, &a).await;
    let finish = running.retry(Duration::ZERO);
    world.store.finish(&finish).await.expect("finish");
    let again = async || world.store.finish(&finish).await.expect("finish");
    assert_eq!(again().await, Finished::AlreadyFinished, "delayed");
    world.promoted(&term, &running.at.run, &b).await;
    assert_eq!(again().await, Finished::AlreadyFinished, "scheduled");
    let next = world.begin(&b).await;
    assert_eq!(
        again().await,
        Finished::AlreadyFinished,
        "executing elsewhere"
    );
    world.store.finish(&next.success()).await.expect("finish");
    assert_eq!(again().await, Finished::AlreadyFinished, "over");
}

/// A save that was applied and is repeated is no fence; nor is one that a newer one overtook.
pub async fn a_repeated_save_is_no_fence(world: World) {
    let (a, _, term, job) = scene(&world).await;
    let running = world.running(&term, &job, 1, &a).await;
    for seq in [1, 1, 2, 2, 1] {
        running
            .save(&world, seq, format!("at {seq}").as_bytes())
            .await;
    }
    let kept = world
        .store
        .checkpoint(&running.at.run)
        .await
        .expect("checkpoint");
    let kept = kept.expect("a checkpoint");
    assert_eq!((kept.seq, kept.data.as_slice()), (2, b"at 2".as_slice()));
    running.save(&world, 3, b"at 3").await;
}

/// A refused task of a job that queues is parked in the register, not in its pod's memory: it goes
/// on when the holder ends, though the pod that parked it is gone.
pub async fn a_refused_task_is_parked(world: World) {
    let (a, b, term, job) = scene(&world).await;
    let holder = world.running(&term, &job, 1, &a).await;
    let waits = world.fire(&term, &job, 2, &b).await;
    let taken = world.take_one(&b).await;
    let claim = world.store.claim(&world.claim_of(&b, &taken)).await;
    assert!(matches!(claim, Ok(Claimed::Overlap { .. })));
    let parked = world.store.park(&b, &taken, 1).await.expect("park");
    assert_eq!(parked, Parked::Parked);
    world.store.leave(&b).await.expect("leave");
    world.store.finish(&holder.success()).await.expect("finish");
    world.promoted(&term, &waits, &a).await;
    assert_eq!(world.begin(&a).await.at.run, waits);
}
