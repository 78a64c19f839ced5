//! The schedules that broke an earlier draft of the protocol, over the production services, in the order
//! in which they were found. Each is named after the rule that mends it; it passes with that rule, and
//! goes wrong without it. The same schedules, cut down to the verbs, are cases of every store's
//! conformance.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use wasmcron_core::ids::RunId;
use wasmcron_core::job::{Job, MisfirePolicy, Overlap};
use wasmcron_core::run::{Outcome, RunRecord, RunState};
use wasmcron_core::task::Reason;
use wasmcron_sim::mutants::Mutant;
use wasmcron_sim::scenario::{Behaviour, Lost, Script, job, model, needs};
use wasmcron_store::schedule::{Operated, Submitted};

type S = Arc<Script>;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A job whose run of so many steps cannot be resumed.
fn at_once(name: &str, steps: u32, step_ms: u64) -> Result<Job> {
    let behaviour = Behaviour {
        save_every: 0,
        ..model(steps, step_ms)
    };
    job(name, MINUTE, behaviour)
}

/// The run ended so, after so many attempts.
fn ended(record: &RunRecord, state: RunState, attempts: usize) -> Result<()> {
    let (run, is, why) = (&record.run, record.state, &record.why);
    ensure!(is == state, "{run} ended as {is:?}: {why:?}");
    let had = record.attempts.len();
    ensure!(had == attempts, "{run} had {had} attempts");
    Ok(())
}

/// C claims and the answer is lost. Refused when it asks again, C let the task go, and its lock ran out:
/// a run ended `Lost` though no guest started.
#[test]
fn claim_by_token() -> Result<()> {
    let scene = async |s: S| {
        s.lose(None, "claim", Lost::Answer);
        let run = s.firing("b").await?;
        ended(&s.end_of(&run).await?, RunState::Succeeded, 1)
    };
    let wrong = ["a repeated claim of fence", "ended as Lost"];
    needs(
        Mutant::ClaimOnce,
        &wrong,
        3,
        &[at_once("b", 2, 500)?],
        scene,
    )
}

/// B claims, the answer is lost, and B freezes; it thaws and asks again with a second of lock left, which
/// it took for ten: two attempts executed.
#[test]
fn a_repeat_renews_the_lock() -> Result<()> {
    let scene = async |s: S| {
        s.lose(None, "claim", Lost::Answer);
        let run = s.firing("b").await?;
        let frozen = s.freeze(s.executing(&run).await?)?;
        s.wait(9 * SECOND).await;
        frozen.thaw();
        ended(&s.end_of(&run).await?, RunState::Succeeded, 1)
    };
    let jobs = [job("b", MINUTE, model(10, 1_000))?];
    let wrong = ["of lock left", "is the newest"];
    needs(Mutant::RepeatKeepsLock, &wrong, 2, &jobs, scene)
}

/// SIGTERM after an unanswered claim: the pod left with an attempt in its name that never started.
#[test]
fn a_claim_is_settled_before_a_drain() -> Result<()> {
    let claimed_and_told_to_leave = async |s: &Script| {
        s.lose(None, "claim", Lost::Answer);
        let run = s.firing("b").await?;
        let pod = s.executing(&run).await?;
        s.terminate(pod);
        let record = s.end_of(&run).await;
        s.start(pod);
        record
    };
    let runs_on = async |s: S| {
        let record = claimed_and_told_to_leave(&s).await?;
        ended(&record, RunState::Succeeded, 1)
    };
    let jobs = [at_once("b", 2, 500)?];
    needs(Mutant::DrainForgets, &["ended as Lost"], 2, &jobs, runs_on)?;
    let yields = async |s: S| {
        let record = claimed_and_told_to_leave(&s).await?;
        ended(&record, RunState::Succeeded, 2)?;
        let first = record.attempts[0].outcome.as_ref();
        ensure!(first == Some(&Outcome::Yielded), "it ended so: {first:?}");
        Ok(())
    };
    let jobs = [job("b", MINUTE, model(10, 500))?];
    needs(
        Mutant::DrainForgets,
        &["ended so: Some(Lost"],
        2,
        &jobs,
        yields,
    )
}

/// A run failed twice and waited for its retry; the next firing of its job began, and the retry met it. It
/// was skipped half-done then; today the store refuses that and parks it, but two runs of the job have
/// begun and not ended all the same.
#[test]
fn a_run_is_active_until_it_ends() -> Result<()> {
    let scene = async |s: S| {
        let first = s.firing("a").await?;
        s.executing(&first).await?;
        let second = s.firing("a").await?;
        let skipped = s.end_of(&second).await?;
        ended(&s.end_of(&first).await?, RunState::Succeeded, 3)?;
        ended(&skipped, RunState::Skipped, 0)
    };
    let behaviour = Behaviour {
        fails_first: 2,
        ..model(3, 1_000)
    };
    let mut a = job("a", 7 * SECOND, behaviour)?;
    a.definition.retry.backoff = 3 * SECOND;
    let wrong = ["had begun and not ended"];
    needs(Mutant::ActiveClearedEarly, &wrong, 3, &[a], scene)
}

/// A froze with a publish under way; a new A at its address campaigned, and the old one's request arrived:
/// two processes acted in one term.
#[test]
fn the_holder_is_part_of_the_term() -> Result<()> {
    let scene = async |s: S| {
        let before = s.lease().await?;
        let run = s.firing("c").await?;
        let publish = s.hold(0, "publish");
        s.sent(&publish).await?;
        // The new one finds the firing undecided and does not come to decide it first.
        s.lose_all(0, "publish", Lost::Request);
        let old = s.twin(0)?;
        let after = s.until("the new A's lease", async || {
            let leader = s.store().leader().await?;
            Ok(leader.filter(|leader| leader.pod.session != before.pod.session))
        });
        let after = after.await?;
        publish.release();
        s.wait(SECOND).await;
        let early = s.store().run(&run).await?;
        s.mend();
        old.thaw();
        ended(&s.end_of(&run).await?, RunState::Succeeded, 1)?;
        ensure!(early.is_none(), "the old A's request counted");
        ensure!(after.term > before.term, "both led in one term");
        Ok(())
    };
    let wrong = [
        "won the lease of another",
        "changed something without leading",
        "the old A's request counted",
    ];
    let jobs = [job("c", 20 * SECOND, model(2, 50))?];
    needs(Mutant::AddressLeads, &wrong, 1, &jobs, scene)
}

/// A task stood in a dead pod's queue and the leader sent it elsewhere; while that was under way the pod
/// came back and claimed it: a live attempt was pulled away.
#[test]
fn a_republish_names_what_it_saw() -> Result<()> {
    let scene = async |s: S| {
        let leader = s.leader().await?;
        let (run, pod) = loop {
            s.lose_all(None, "claim", Lost::Request);
            let run = s.firing("c").await?;
            let pod = s.queued(&run).await?;
            if pod != leader {
                break (run, pod);
            }
            s.mend();
            s.end_of(&run).await?;
        };
        s.kill(pod);
        s.mend();
        let republish = s.hold(leader, "republish");
        s.sent(&republish).await?;
        s.start(pod);
        let on = s.executing(&run).await?;
        ensure!(on == pod, "pod {on} has it");
        republish.release();
        ended(&s.end_of(&run).await?, RunState::Succeeded, 1)
    };
    let jobs = [job("c", MINUTE, model(10, 500))?];
    let wrong = ["was given out while", "had 2 attempts"];
    needs(Mutant::RepublishUnseen, &wrong, 3, &jobs, scene)
}

/// Somebody asked for the run of the next firing just before its time, and the firing made it a second
/// time; or the firing was made by a request that broke off, and is made again when its run is over.
#[test]
fn a_backfill_ends_at_the_cursor_and_no_record_is_overwritten() -> Result<()> {
    let ahead = async |s: S| {
        let due = s.next("c").await?;
        s.until_time(due - SECOND).await;
        let early = s.backfill("c", due).await?;
        s.until_time(due + 2 * SECOND).await;
        let record = s.end_of(&RunId::nominal(&"c".parse()?, due)).await?;
        ended(&record, RunState::Succeeded, 1)?;
        let late = s.backfill("c", due).await?;
        ensure!(late == Submitted::Exists, "asked for again: {late:?}");
        let before = due - MINUTE;
        let past = s.backfill("c", before).await?;
        let past = matches!(past, Submitted::Accepted { .. });
        ensure!(past, "a time before the cursor was refused");
        s.end_of(&RunId::nominal(&"c".parse()?, before)).await?;
        let (reason, is_early) = (record.reason, matches!(early, Submitted::NotYet { .. }));
        ensure!(is_early && reason == Reason::Scheduled, "{early:?}");
        Ok(())
    };
    let jobs = [job("c", MINUTE, model(1, 50))?];
    let wrong = ["has no answer", "Accepted"];
    needs(Mutant::BackfillAhead, &wrong, 1, &jobs, ahead)?;
    let again = async |s: S| {
        s.world.fragile.arm(true);
        let run = s.firing("c").await?;
        ended(&s.end_of(&run).await?, RunState::Succeeded, 1)?;
        s.wait(5 * SECOND).await;
        let begun = s.world.witness.begun();
        ensure!(begun == 1, "it began {begun} times");
        let cursor = s.next("c").await?;
        ensure!(RunId::nominal(&"c".parse()?, cursor) != run, "it is due");
        Ok(())
    };
    let wrong = ["was made a second time", "had ended as", "began 2 times"];
    needs(Mutant::RecordOverwritten, &wrong, 1, &jobs, again)
}

/// B led and had not opened a new job yet when it froze; C opened it after its first time and began from
/// then: that time was never decided.
#[test]
fn a_new_job_begins_when_it_was_reported() -> Result<()> {
    let scene = async |s: S| {
        s.lose_all(None, "open", Lost::Request);
        let first = s.leader().await?;
        s.wait(5 * SECOND).await;
        let schedule = &s.world.jobs[0].definition.schedule;
        let due = schedule.next_after(s.now()).context("it never fires")?;
        s.until_time(due - SECOND).await;
        let frozen = s.freeze(first)?;
        s.until("another leader", async || {
            Ok((s.leader().await? != first).then_some(()))
        })
        .await?;
        ensure!(s.now() > due, "it is not late");
        s.mend();
        let run = RunId::nominal(&"d".parse()?, due);
        let record = s.end_of(&run).await;
        frozen.thaw();
        ended(&record?, RunState::Succeeded, 1)
    };
    let jobs = [job("d", 30 * SECOND, model(1, 50))?];
    let wrong = ["its cursor began at", "did not come"];
    needs(Mutant::OpenAtNow, &wrong, 3, &jobs, scene)
}

/// One batch, and the pod of an earlier firing left just before it arrived: the later one was written, and
/// the earlier one deduped for ever.
#[test]
fn decisions_of_a_job_keep_their_order() -> Result<()> {
    let scene = async |s: S| {
        let leader = s.leader().await?;
        let first = s.firing("a").await?;
        s.end_of(&first).await?;
        let due = s.next("a").await?;
        // Not so long that another leads, and long enough for three firings.
        let frozen = s.freeze(leader)?;
        s.until_time(due + 2 * SECOND + SECOND / 2).await;
        let publish = s.hold(leader, "publish");
        frozen.thaw();
        s.sent(&publish).await?;
        let other = 1 - leader;
        s.terminate(other);
        s.wait(SECOND / 5).await;
        publish.release();
        s.wait(5 * SECOND).await;
        s.start(other);
        for late in 0..3 {
            // They come together, so some may be skipped for another; but each has its own run.
            s.end_of(&RunId::nominal(&"a".parse()?, due + late * SECOND))
                .await?;
        }
        Ok(())
    };
    let mut a = job("a", SECOND, model(1, 10))?;
    a.definition.misfire.policy = MisfirePolicy::All { max: 10 };
    let wrong = ["has no answer", "did not come"];
    needs(Mutant::HeldLeftOut, &wrong, 2, &[a], scene)
}

/// The first claim is still under way when its repeat has run the attempt, which failed; it met the entry
/// of the retry: an attempt began that nobody ran.
#[test]
fn a_late_claim_does_not_take_the_retry() -> Result<()> {
    let scene = async |s: S| {
        let claim = s.hold(0, "claim");
        s.lose(0, "claim", Lost::Nothing);
        // The retry stays in the queue for a while.
        s.lose(0, "claim", Lost::Request);
        let run = s.firing("c").await?;
        s.executing(&run).await?;
        s.queued(&run).await?;
        claim.release();
        ended(&s.end_of(&run).await?, RunState::Succeeded, 2)
    };
    let behaviour = Behaviour {
        fails_first: 1,
        ..model(2, 500)
    };
    let jobs = [job("c", MINUTE, behaviour)?];
    let wrong = ["became a second attempt", "had 3 attempts"];
    needs(Mutant::CopiesLive, &wrong, 1, &jobs, scene)
}

/// A frozen client's take still moved an entry, and its reply reached nobody: the task waited for five
/// minutes. So it did when the reply was lost.
#[test]
fn claiming_is_read_again() -> Result<()> {
    let wrong = ["was forgotten in a queue", "did not come"];
    let in_time = async |s: &Script, run: &RunId, within: Duration| {
        let record = s.end_of(run).await?;
        ended(&record, RunState::Succeeded, 1)?;
        let took = record.ended_at.map(|at| at.since(record.nominal));
        ensure!(took < Some(within), "it came after {took:?}");
        Ok(())
    };
    let frozen = async |s: S| {
        let other = 1 - s.leader().await?;
        let due = s.next("a").await?;
        s.until_time(due - 5 * SECOND).await;
        let take = s.hold(other, "take");
        s.sent(&take).await?;
        s.until_time(due - SECOND).await;
        let frozen = s.freeze(other)?;
        // Both pods have their turn: one of the two stands in the queue of the frozen one.
        let runs = ["a", "b"].map(|job| job.parse().map(|job| RunId::nominal(&job, due)));
        s.until_time(due + SECOND).await;
        take.release();
        s.wait(SECOND).await;
        frozen.thaw();
        for run in runs {
            in_time(&s, &run?, 6 * SECOND).await?;
        }
        Ok(())
    };
    let jobs = [
        job("a", MINUTE, model(2, 50))?,
        job("b", MINUTE, model(2, 50))?,
    ];
    needs(Mutant::ClaimingNotRead, &wrong, 2, &jobs, frozen)?;
    let unanswered = async |s: S| {
        let run = s.firing("a").await?;
        s.lose_all(0, "take", Lost::Answer);
        in_time(&s, &run, 5 * SECOND).await
    };
    let jobs = &jobs[..1];
    needs(Mutant::ClaimingNotRead, &wrong, 1, jobs, unanswered)
}

/// An attempt failed and its retry waited among the delayed runs; by the cursor it had been decided: no
/// retry ever ran.
#[test]
fn a_retry_is_promoted() -> Result<()> {
    let scene = async |s: S| {
        s.lose(None, "promote", Lost::Answer);
        let run = s.firing("a").await?;
        ended(&s.end_of(&run).await?, RunState::Succeeded, 2)
    };
    let behaviour = Behaviour {
        fails_first: 1,
        ..model(2, 500)
    };
    let jobs = [job("a", MINUTE, behaviour)?];
    let wrong = ["never ended", "did not come"];
    needs(Mutant::PromoteDedupes, &wrong, 2, &jobs, scene)
}

/// A pause was acknowledged while a publish of a leader that did not know of it was under way: a paused
/// job fired.
#[test]
fn an_acknowledged_pause_holds() -> Result<()> {
    let scene = async |s: S| {
        let (job, run) = ("a".parse()?, s.firing("a").await?);
        let due = s.next("a").await?;
        let publish = s.hold(s.leader().await?, "publish");
        s.sent(&publish).await?;
        let paused = s.store().pause(&job, "ann", "a look at it").await?;
        ensure!(paused == Operated::Done, "{paused:?}");
        s.wait(SECOND / 2).await;
        publish.release();
        s.wait(10 * SECOND).await;
        let fired = s.store().run(&run).await?.is_some();
        s.store().resume(&job, "ann").await?;
        let next = s.firing("a").await?;
        ended(&s.end_of(&next).await?, RunState::Succeeded, 1)?;
        ensure!(!fired, "a paused job fired");
        let gaps = s.store().gaps(&job, 10).await?;
        let said = gaps
            .iter()
            .any(|gap| gap.from <= due && due <= gap.to && gap.why == "paused");
        ensure!(said, "nothing says that {due} was passed: {gaps:?}");
        Ok(())
    };
    let jobs = [job("a", MINUTE, model(1, 50))?];
    let wrong = [
        "was published after its job was paused",
        "a paused job fired",
    ];
    needs(Mutant::PauseFromCopy, &wrong, 2, &jobs, scene)
}

/// A finish was applied, its answer lost, and it was repeated: a fenced success was reported.
#[test]
fn a_repeated_finish_is_no_fence() -> Result<()> {
    let scene = async |s: S| {
        s.lose(0, "finish", Lost::Answer);
        let run = s.firing("a").await?;
        ended(&s.end_of(&run).await?, RunState::Succeeded, 1)?;
        s.wait(5 * SECOND).await;
        let fenced = s.pod(0).fenced();
        ensure!(fenced == 0, "{fenced} writes were reported as fenced");
        Ok(())
    };
    let wrong = ["was answered Fenced", "1 writes were reported as fenced"];
    needs(
        Mutant::FinishOnce,
        &wrong,
        1,
        &[at_once("a", 2, 50)?],
        scene,
    )
}

/// A checkpoint was saved, the answer lost, and the save repeated: a healthy guest was told that it is
/// fenced, and ended.
#[test]
fn a_repeated_save_is_no_fence() -> Result<()> {
    let scene = async |s: S| {
        s.lose(0, "save_checkpoint", Lost::Answer);
        let run = s.firing("a").await?;
        ended(&s.end_of(&run).await?, RunState::Succeeded, 1)?;
        let fenced = s.pod(0).fenced();
        ensure!(fenced == 0, "{fenced} writes were reported as fenced");
        Ok(())
    };
    let jobs = [job("a", MINUTE, model(3, 50))?];
    let wrong = ["was told that it is fenced", "had 2 attempts"];
    needs(Mutant::SaveOnce, &wrong, 1, &jobs, scene)
}

/// A holder ran on, and the task that met it stood in no list, or in one that nobody looked at when the
/// holder ended: it waited until it had been scheduled too long, or for ever.
#[test]
fn a_refused_task_is_parked() -> Result<()> {
    let scene = async |s: S| {
        let holder = s.firing("c").await?;
        let on = s.executing(&holder).await?;
        let waits = s.run_in("c", RunState::Parked).await?;
        // Whoever parked it is not needed any more.
        for other in (0..3).filter(|pod| *pod != on) {
            s.kill(other);
            s.start(other);
        }
        let holder = s.end_of(&holder).await?;
        ended(&holder, RunState::Succeeded, 1)?;
        let record = s.end_of(&waits.run).await?;
        ended(&record, RunState::Succeeded, 1)?;
        let began = record.attempts[0].claimed_at;
        let is_prompt = holder.ended_at.is_some_and(|at| began < at + 8 * SECOND);
        ensure!(is_prompt, "it began late");
        Ok(())
    };
    let mut c = job("c", 10 * SECOND, model(24, 500))?;
    c.definition.overlap = Overlap::Queue;
    let jobs = [c];
    needs(
        Mutant::ParkNowhere,
        &["state parked did not come"],
        3,
        &jobs,
        scene,
    )?;
    needs(Mutant::ParkedForgotten, &["never ended"], 3, &jobs, scene)
}
