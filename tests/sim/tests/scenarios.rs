//! Single cases by hand, over the production services: each names the case or the schedule it plays.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use wasmcron_core::job::{MisfirePolicy, Overlap};
use wasmcron_core::run::{Outcome, RunState};
use wasmcron_core::task::Reason;
use wasmcron_sim::mutants::Mutant;
use wasmcron_sim::scenario::{Behaviour, Frozen, Lost, Script, job, model, needs, play};
use wasmcron_store::embedded::engine::{Key, Tx as _};
use wasmcron_store::embedded::records::Lock;

type S = Arc<Script>;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn c20_a_firing_that_is_looked_at_late_runs_once_for_its_own_time() -> Result<()> {
    let scene = async |s: S| {
        let due = s.next("sync").await?;
        s.until_time(due - SECOND).await;
        let frozen = s.freeze(0)?;
        s.wait(3 * SECOND).await;
        frozen.thaw();
        let run = s.run_in("sync", RunState::Succeeded).await?;
        ensure!(run.nominal == due, "{} ran instead of {due}", run.nominal);
        Ok(())
    };
    let jobs = [job("sync", 30 * SECOND, model(2, 50))?];
    needs(Mutant::LateDropped, &["has no answer"], 1, &jobs, scene)
}

#[test]
fn c23_a_leader_that_restarts_within_the_minute_does_not_fire_again() -> Result<()> {
    let scene = async |s: S| {
        let due = s.next("sync").await?;
        s.run_in("sync", RunState::Succeeded).await?;
        let leader = s.leader().await?;
        s.kill(leader);
        s.wait(SECOND).await;
        s.start(leader);
        s.until_time(due + 50 * SECOND).await;
        ensure!(s.runs("sync").await?.len() == 1, "it fired again");
        Ok(())
    };
    let jobs = [job("sync", 60 * SECOND, model(1, 50))?];
    needs(
        Mutant::FiringsForgotten,
        &["was made a second time", "it fired again"],
        2,
        &jobs,
        scene,
    )
}

#[test]
fn c25_a_firing_survives_the_death_of_its_leader_just_before() -> Result<()> {
    let scene = async |s: S| {
        let due = s.next("sync").await?;
        let leader = s.leader().await?;
        s.until_time(due - SECOND).await;
        s.kill(leader);
        let run = s.run_in("sync", RunState::Succeeded).await?;
        ensure!(run.nominal == due, "{} ran instead of {due}", run.nominal);
        s.start(leader);
        Ok(())
    };
    let jobs = [job("sync", 60 * SECOND, model(1, 50))?];
    needs(
        Mutant::FollowerAdvances,
        &["has no answer", "ran instead of"],
        2,
        &jobs,
        scene,
    )
}

#[test]
fn c41_a_finish_whose_answer_is_lost_is_told_that_it_finished() -> Result<()> {
    let scene = async |s: S| {
        s.lose(0, "finish", Lost::Answer);
        s.run_in("sync", RunState::Succeeded).await?;
        s.wait(5 * SECOND).await;
        Ok(())
    };
    let jobs = [job("sync", 30 * SECOND, model(2, 50))?];
    needs(
        Mutant::FinishOnce,
        &["was answered Fenced"],
        1,
        &jobs,
        scene,
    )
}

#[test]
fn c44_the_late_success_of_a_pod_that_was_given_up_does_not_count() -> Result<()> {
    let scene = async |s: S| {
        let run = s.firing("sync").await?;
        let first = s.executing(&run).await?;
        let finish = s.hold(first, "finish");
        s.sent(&finish).await?;
        let frozen = s.freeze(first)?;
        s.until("an attempt elsewhere", async || {
            let running = s.store().running(None).await?.entries;
            let address = s.pod(first).address();
            Ok(running.iter().any(|one| one.pod != *address).then_some(()))
        })
        .await?;
        finish.release();
        s.wait(SECOND).await;
        frozen.thaw();
        let record = s.end_of(&run).await?;
        let outcomes: Vec<_> = record.attempts.iter().map(|one| &one.outcome).collect();
        ensure!(
            matches!(
                outcomes[..],
                [Some(Outcome::Lost { .. }), Some(Outcome::Succeeded { .. })]
            ),
            "its attempts ended so: {outcomes:?}"
        );
        let took = record.attempts[1]
            .ended_at
            .map(|at| at.since(record.attempts[1].claimed_at));
        ensure!(
            took >= Some(3 * SECOND),
            "the second one ended after {took:?}"
        );
        Ok(())
    };
    // The last checkpoint is three seconds before the end, so that the second attempt takes as long.
    let behaviour = Behaviour {
        save_every: 7,
        ..model(20, 500)
    };
    let jobs = [job("sync", 60 * SECOND, behaviour)?];
    let wrong = ["was closed, Some", "the second one ended after"];
    needs(Mutant::FinishUnfenced, &wrong, 3, &jobs, scene)
}

#[test]
fn c48_a_claim_whose_first_answer_is_lost_begins_once() -> Result<()> {
    let scene = async |s: S| {
        s.lose(0, "claim", Lost::Answer);
        let run = s.run_in("sync", RunState::Succeeded).await?;
        ensure!(run.attempts.len() == 1, "{} attempts", run.attempts.len());
        Ok(())
    };
    let jobs = [job("sync", 30 * SECOND, model(2, 50))?];
    needs(
        Mutant::ClaimOnce,
        &["a repeated claim of fence", "2 attempts"],
        1,
        &jobs,
        scene,
    )
}

#[test]
fn a_campaign_whose_answer_is_lost_is_won_by_its_repeat() -> Result<()> {
    let scene = async |s: S| {
        s.lose(0, "campaign", Lost::Answer);
        s.run_in("sync", RunState::Succeeded).await?;
        Ok(())
    };
    let jobs = [job("sync", 10 * SECOND, model(1, 50))?];
    needs(
        Mutant::CampaignHeld,
        &["and was told Held"],
        1,
        &jobs,
        scene,
    )
}

#[test]
fn c52_a_leader_whose_clock_is_wrong_neither_repeats_nor_forgets() -> Result<()> {
    let scene = async |s: S| {
        s.pod(1).wall().step(300_000);
        s.pod(2).wall().step(-300_000);
        for _ in 0..3 {
            let leader = s.leader().await?;
            s.kill(leader);
            s.wait(25 * SECOND).await;
            s.start(leader);
        }
        let mut wrong = s.runs("sync").await?;
        wrong.retain(|run| {
            let (early, late) = (
                run.nominal.since(run.created_at),
                run.created_at.since(run.nominal),
            );
            early > SECOND / 10 || late > 10 * SECOND
        });
        let wrong: Vec<_> = wrong.iter().map(|run| (&run.run, run.created_at)).collect();
        ensure!(wrong.is_empty(), "made at other times: {wrong:?}");
        Ok(())
    };
    let mut sync = job("sync", 20 * SECOND, model(1, 50))?;
    sync.definition.misfire.policy = MisfirePolicy::All { max: 10 };
    needs(
        Mutant::OwnClock,
        &["made at other times"],
        3,
        &[sync],
        scene,
    )
}

#[test]
fn c20_a_firing_that_is_a_minute_late_is_caught_up() -> Result<()> {
    let scene = async |s: S| {
        let due = s.next("sync").await?;
        s.until_time(due - SECOND).await;
        let frozen = s.freeze(0)?;
        s.wait(63 * SECOND).await;
        frozen.thaw();
        let run = s.run_in("sync", RunState::Succeeded).await?;
        ensure!(run.nominal == due, "{} ran instead of {due}", run.nominal);
        ensure!(run.reason == Reason::CatchUp, "{:?}", run.reason);
        Ok(())
    };
    let jobs = [job("sync", 300 * SECOND, model(2, 50))?];
    needs(Mutant::LateDropped, &["has no answer"], 1, &jobs, scene)
}

#[test]
fn c39_an_attempt_without_a_lock_is_followed_by_another() -> Result<()> {
    let jobs = vec![job("sync", 120 * SECOND, model(20, 1_000))?];
    play(2, jobs, async |s| {
        let run = s.run_in("sync", RunState::Running).await?;
        s.wait(5 * SECOND).await;
        s.world
            .engine
            .edit(|tx| tx.remove::<Lock>(&Key::named("sync")))?;
        let ended = s.end_of(&run.run).await?;
        ensure!(ended.state == RunState::Succeeded, "{:?}", ended.state);
        let attempts = ended.attempts.len();
        ensure!(attempts == 2, "{attempts} attempts");
        Ok(())
    })
}

#[test]
fn c47_a_copy_in_the_queue_of_a_pod_that_was_away_is_inert() -> Result<()> {
    let names = ["a", "b", "c", "d", "e", "f"];
    let jobs = names
        .iter()
        .map(|name| job(name, 300 * SECOND, model(3, 100)))
        .collect::<Result<Vec<_>>>()?;
    play(3, jobs, async |s| {
        let leader = s.leader().await?;
        let due = s.next("a").await?;
        s.until_time(due - Duration::from_millis(500)).await;
        let others = (0..3).filter(|pod| *pod != leader);
        let frozen = others
            .map(|pod| s.freeze(pod))
            .collect::<Result<Vec<_>>>()?;
        s.wait(30 * SECOND).await;
        frozen.into_iter().for_each(Frozen::thaw);
        s.wait(30 * SECOND).await;
        for name in names {
            let runs = s.runs(name).await?;
            ensure!(runs.len() == 1, "{name} has {} runs", runs.len());
            ensure!(
                runs[0].state == RunState::Succeeded,
                "{name}: {:?}",
                runs[0].state
            );
            ensure!(
                runs[0].attempts.len() == 1,
                "{name}: {} attempts",
                runs[0].attempts.len()
            );
        }
        Ok(())
    })
}

#[test]
fn a_tick_that_comes_some_milliseconds_early_fires_its_own_time_once() -> Result<()> {
    let jobs = vec![job("sync", 10 * SECOND, model(1, 10))?];
    play(2, jobs, async |s| {
        let first = s.next("sync").await?;
        // The pods' estimate of the store's clock is ahead from now on, until it is measured again.
        for back in [3, 8, 20] {
            let due = s.next("sync").await?;
            s.until_time(due - SECOND).await;
            s.world.store_wall.step(-back);
            s.until_time(due + 2 * SECOND).await;
        }
        let mut nominal: Vec<_> = s
            .runs("sync")
            .await?
            .iter()
            .map(|run| run.nominal)
            .collect();
        nominal.sort_unstable();
        let wanted: Vec<_> = (0..3).map(|n| first + n * 10 * SECOND).collect();
        ensure!(nominal == wanted, "{nominal:?} ran instead of {wanted:?}");
        Ok(())
    })
}

/// Found by the simulation: the cursor of the copy that took over was earlier than the leader remembered,
/// and the next firing jumped over the lost one.
#[test]
fn a_failover_that_loses_a_firing_does_not_hide_it() -> Result<()> {
    let scene = async |s: S| {
        let due = s.next("sync").await?;
        s.until_time(due - Duration::from_millis(100)).await;
        let (records, ledger) = (s.world.engine.snapshot(), s.world.witness.snapshot());
        s.until_time(due + SECOND).await;
        ensure!(s.runs("sync").await?.len() == 1, "it did not fire");
        // Nobody's connection breaks, so nobody has a reason to look again.
        s.world.engine.restore(&records);
        s.world.witness.restore(&ledger);
        s.until_time(due + 25 * SECOND).await;
        let ran = s.runs("sync").await?.iter().any(|run| run.nominal == due);
        let gaps = s.store().gaps(&"sync".parse()?, 10).await?;
        let passed = gaps.iter().any(|gap| gap.from <= due && due <= gap.to);
        ensure!(ran || passed, "{due} has no answer");
        Ok(())
    };
    let jobs = [job("sync", 10 * SECOND, model(1, 50))?];
    needs(Mutant::AfterIgnored, &["has no answer"], 2, &jobs, scene)
}

/// A store in which no job was ever opened has no list of changes: that is no reason to read it again
/// and again.
#[test]
fn a_leader_without_jobs_rests() -> Result<()> {
    play(1, Vec::new(), async |s| {
        s.leader().await?;
        let before = s.world.net.counts().0;
        s.wait(60 * SECOND).await;
        let asked = s.world.net.counts().0 - before;
        ensure!(asked < 1_000, "{asked} requests in a minute");
        Ok(())
    })
}

/// A claim that was given up reaches the store after its repeat was told of an overlap, and takes the task:
/// the pod, which finds nothing left to park, asks once more instead of forgetting it.
#[test]
fn a_claim_that_overtakes_its_overlap_is_executed() -> Result<()> {
    let mut c = job("c", 10 * SECOND, model(24, 500))?;
    c.definition.overlap = Overlap::Queue;
    play(2, vec![c], async |s| {
        let holder = s.firing("c").await?;
        let executor = s.executing(&holder).await?;
        let other = 1 - executor;
        let claim = s.hold(other, "claim");
        let park = s.hold(other, "park");
        s.sent(&park).await?;
        let waits = s.run_in("c", RunState::Scheduled).await?.run;
        s.end_of(&holder).await?;
        claim.release();
        park.release();
        let record = s.end_of(&waits).await?;
        ensure!(record.state == RunState::Succeeded, "{:?}", record.state);
        ensure!(record.attempts.len() == 1, "{:?}", record.attempts);
        Ok(())
    })
}

/// After a short outage every missed firing of `misfire = all` runs, one after the other: none is skipped for
/// another one of them.
#[test]
fn firings_missed_together_do_not_skip_each_other() -> Result<()> {
    let mut c = job("c", 2 * SECOND, model(3, 100))?;
    c.definition.misfire.policy = MisfirePolicy::All { max: 100 };
    play(3, vec![c], async |s| {
        let from = s.firing("c").await?.to_string();
        (0..3).for_each(|pod| s.kill(pod));
        s.wait(15 * SECOND).await;
        (0..3).for_each(|pod| s.start(pod));
        let back = s.now();
        s.until_time(back + 30 * SECOND).await;
        let mut runs = s.runs("c").await?;
        runs.retain(|run| run.run.to_string() > from && run.nominal < back);
        runs.sort_by_key(|run| run.nominal);
        ensure!(runs.len() >= 6, "{} runs", runs.len());
        let mut begins = Vec::new();
        for run in runs {
            let state = run.state;
            ensure!(state == RunState::Succeeded, "{} {state:?}", run.run);
            begins.push(run.attempts[0].claimed_at);
        }
        // Their claims race for the first place; the others wait and begin in order.
        let first = begins.iter().min().copied();
        begins.retain(|at| Some(*at) != first);
        ensure!(begins.is_sorted(), "{begins:?}");
        Ok(())
    })
}
