//! Cases from the field about leaders, registers and lost records, over the production services.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use wasmcron_core::ids::PodRef;
use wasmcron_core::run::{Outcome, RunState};
use wasmcron_host::config::settings::Settings;
use wasmcron_sim::mutants::Mutant;
use wasmcron_sim::scenario::{Lost, Script, job, model, needs, play};
use wasmcron_store::embedded::engine::{Key, Tx as _};
use wasmcron_store::embedded::records::{Leadership, Lock, Running};
use wasmcron_store::leadership::Campaign;

const SECOND: Duration = Duration::from_secs(1);

/// What the leader's settings are: those of every pod, which are the defaults.
fn settings() -> Settings {
    Settings::default()
}

/// For three days no pod may take a job that is due every minute: nothing is written for it, the firing waits
/// with its reason, and the first pod that may take it runs it. (C27)
#[test]
fn c27_days_without_a_worker_leave_nothing_behind() -> Result<()> {
    let mut picky = job("picky", 60 * SECOND, model(1, 50))?;
    let anywhere = picky.clone();
    picky
        .definition
        .pods
        .insert("zone".into(), "nowhere".into());
    play(1, vec![picky], async |s| {
        let name = "picky".parse()?;
        s.until("the reason", async || {
            let view = s.store().job(&name).await?;
            Ok(view.and_then(|view| view.waiting))
        })
        .await?;
        let events = s.store().execution_log(None, 1_000).await?.len();
        s.wait(3 * 86_400 * SECOND).await;
        let counts = s.store().counts().await?;
        ensure!(
            counts.scheduled + counts.running + counts.delayed + counts.dead_letters == 0,
            "{counts:?}"
        );
        ensure!(s.runs("picky").await?.is_empty(), "it has runs");
        let gaps = s.store().gaps(&name, 1_000).await?;
        ensure!(gaps.len() <= 370, "{} gaps", gaps.len());
        let log = s.store().execution_log(None, 1_000).await?;
        let of_runs = log
            .iter()
            .skip(events)
            .filter(|event| event.event.starts_with("run."));
        ensure!(of_runs.count() == 0, "{log:?}");
        let now = s.world.store_wall.now();
        s.pod(0).set_job(0, Arc::new(anywhere));
        let run = s.run_in("picky", RunState::Succeeded).await?;
        ensure!(run.nominal > now - 60 * SECOND * 11, "{}", run.nominal);
        Ok(())
    })
}

/// Whoever leads goes on leading, and its lease is never older than two renewals. (C29)
#[test]
fn c29_a_leader_that_lives_is_never_replaced() -> Result<()> {
    play(
        2,
        vec![job("sync", 30 * SECOND, model(1, 50))?],
        async |s| {
            s.leader().await?;
            let first = s.store().leader().await?.context("a leader")?;
            let (ttl, renewal) = (settings().leader.ttl.get(), settings().leader.renewal.get());
            for _ in 0..6_000 {
                s.wait(Duration::from_millis(100)).await;
                let now = s.store().leader().await?.context("nobody leads")?;
                ensure!(
                    now.term == first.term,
                    "term {} after {}",
                    now.term,
                    first.term
                );
                ensure!(
                    now.expires_in + 2 * renewal >= ttl,
                    "{:?} left",
                    now.expires_in
                );
            }
            Ok(())
        },
    )
}

/// The lease goes to another pod while its holder is in the middle of publishing and hears nothing: what it publishes
/// after that is refused, and every firing has one run with one attempt. (C30)
#[test]
fn c30_a_leader_that_is_deposed_in_the_middle_publishes_nothing_more() -> Result<()> {
    const JOBS: usize = 250;
    let jobs = (0..JOBS)
        .map(|n| job(&format!("sync-{n:03}"), 300 * SECOND, model(1, 10)))
        .collect::<Result<Vec<_>>>()?;
    let scene = async |s: Arc<Script>| {
        let due = s.next("sync-249").await?;
        let old = s.leader().await?;
        s.until_time(due - SECOND).await;
        // Its first batch is published and it does not hear so: it stands there with the rest.
        s.lose(old, "publish", Lost::Answer);
        for _ in 0..4 {
            s.lose(old, "renew", Lost::Answer);
        }
        s.until("the first batch", async || {
            let counts = s.store().counts().await?;
            Ok((counts.scheduled > 0).then_some(()))
        })
        .await?;
        s.world.engine.edit(|tx| {
            let key = Key::named("");
            let lease = tx.get::<Leadership>(&key)?.expect("a lease");
            let free = Leadership {
                until: None,
                ..Leadership::clone(&lease)
            };
            tx.put(key, free)
        })?;
        let rival = PodRef {
            address: "rival".parse()?,
            session: "01JDX00000000000000000000Z".parse()?,
        };
        let won = s.store().campaign(&rival, 6 * SECOND).await?;
        ensure!(matches!(won, Campaign::Won(_)), "{won:?}");
        let published = async || {
            let mut published = 0;
            for n in 0..JOBS {
                let runs = s.runs(&format!("sync-{n:03}")).await?;
                ensure!(runs.len() <= 1, "{} runs of sync-{n:03}", runs.len());
                published += runs.iter().filter(|run| run.state.is_ended()).count();
            }
            Ok((published == JOBS).then_some(()))
        };
        s.until("every firing to run", published).await?;
        for n in 0..JOBS {
            let run = &s.runs(&format!("sync-{n:03}")).await?[0];
            ensure!(run.nominal == due && run.attempts.len() == 1, "{run:?}");
        }
        Ok(())
    };
    needs(Mutant::UnledPublish, &["without leading"], 4, &jobs, scene)
}

/// One renewal is not answered, one does not arrive, and one arrives late: the leader tries
/// again and stays. A campaign that is refused the same way is tried again as well. (C32)
#[test]
fn c32_a_failed_renewal_costs_nothing() -> Result<()> {
    play(
        2,
        vec![job("sync", 30 * SECOND, model(1, 50))?],
        async |s| {
            let leader = s.leader().await?;
            let first = s.store().leader().await?.context("a leader")?;
            for lost in [Some(Lost::Answer), Some(Lost::Request), None] {
                match lost {
                    Some(lost) => s.lose(leader, "renew", lost),
                    None => {
                        let late = s.hold(leader, "renew");
                        s.sent(&late).await?;
                        s.wait(SECOND).await;
                        late.release();
                    }
                }
                s.wait(10 * SECOND).await;
                let now = s.store().leader().await?.context("nobody leads")?;
                ensure!(now.term == first.term, "{lost:?} cost the term");
            }
            let other = 1 - leader;
            s.lose(other, "campaign", Lost::Request);
            s.pod(leader).kill();
            let next = s
                .until("the next leader", async || {
                    let now = s.store().leader().await?;
                    Ok(now.filter(|now| now.pod.address == *s.pod(other).address()))
                })
                .await?;
            ensure!(next.term > first.term, "{}", next.term);
            s.pod(leader).start();
            Ok(())
        },
    )
}

/// A failover to a copy that knows neither the lease nor the lock nor the run: the old owner hears that
/// nothing is its own, the firing runs again, and no number is given twice. (C36)
#[test]
fn c36_a_failover_that_loses_lease_and_lock() -> Result<()> {
    play(
        3,
        vec![job("sync", 120 * SECOND, model(20, 500))?],
        async |s| {
            let due = s.next("sync").await?;
            s.until_time(due - Duration::from_millis(100)).await;
            let (records, ledger) = (s.world.engine.snapshot(), s.world.witness.snapshot());
            let old = s.run_in("sync", RunState::Running).await?;
            let first = s.until("its fence", async || {
                let page = s.store().running(None).await?;
                Ok(page
                    .entries
                    .into_iter()
                    .find(|entry| entry.task.run == old.run))
            });
            let first = first.await?;
            s.wait(3 * SECOND).await;
            s.world.engine.restore(&records);
            s.world.witness.restore(&ledger);
            s.world
                .engine
                .edit(|tx| tx.remove::<Leadership>(&Key::named("")).map(drop))?;
            let ended = s.end_of(&old.run).await?;
            ensure!(
                ended.nominal == due && ended.state == RunState::Succeeded,
                "{ended:?}"
            );
            let last = ended.attempts.last().context("an attempt")?;
            ensure!(
                last.fence > first.fence,
                "{} after {}",
                last.fence,
                first.fence
            );
            ensure!(s.leader().await.is_ok(), "nobody leads");
            Ok(())
        },
    )
}

/// Entries whose end is missing stand in the register of runs: the scan sets each aside as lost, and the
/// runs beside them go on. (C39)
#[test]
fn c39_a_scan_gets_past_entries_that_cannot_be_read() -> Result<()> {
    let names = ["a", "b", "c", "d"];
    let jobs = names
        .iter()
        .map(|name| job(name, 300 * SECOND, model(30, 500)))
        .collect::<Result<Vec<_>>>()?;
    play(2, jobs, async |s| {
        for name in names {
            s.run_in(name, RunState::Running).await?;
        }
        let victims: Vec<_> = s.store().running(None).await?.entries;
        ensure!(victims.len() == names.len(), "{victims:?}");
        let (broken, whole) = victims.split_at(2);
        for entry in broken {
            s.world.witness.taint(&entry.task.run);
        }
        s.world.engine.edit(|tx| {
            for entry in broken {
                tx.spoil::<Running>(Key::named(entry.task.run.as_str()), "{\"task\": {")?;
            }
            Ok(())
        })?;
        for entry in broken {
            let ended = s.end_of(&entry.task.run).await?;
            ensure!(ended.state == RunState::Lost, "{ended:?}");
        }
        ensure!(s.store().counts().await?.dead_letters == 2, "not counted");
        for entry in whole {
            let ended = s.end_of(&entry.task.run).await?;
            ensure!(ended.state == RunState::Succeeded, "{ended:?}");
        }
        Ok(())
    })
}

/// The pod that executes is killed after its successor was started, and nothing starts afterwards: the run
/// goes on within lock TTL, scan and election. (C40)
#[test]
fn c40_a_rolling_deploy_recovers_what_the_old_pod_ran() -> Result<()> {
    play(
        2,
        vec![job("sync", 300 * SECOND, model(40, 500))?],
        async |s| {
            s.pod(1).kill();
            let run = s.run_in("sync", RunState::Running).await?;
            ensure!(s.executing(&run.run).await? == 0, "on the other pod");
            s.pod(1).start();
            s.wait(6 * SECOND).await;
            s.pod(0).kill();
            let killed = s.world.store_wall.now();
            let again = s.until("the second attempt", async || {
                let record = s.store().run(&run.run).await?;
                Ok(record.and_then(|record| record.attempts.get(1).cloned()))
            });
            let late = again.await?.claimed_at.since(killed);
            let settings = settings();
            let limit = settings.leader.ttl.get() + settings.lock.ttl.get() + 2 * SECOND;
            ensure!(late <= limit, "{late:?} after the kill");
            let ended = s.end_of(&run.run).await?;
            ensure!(ended.state == RunState::Succeeded, "{ended:?}");
            s.pod(0).start();
            Ok(())
        },
    )
}

/// Clocks five minutes ahead and behind: every pod stays alive for the others, and no task is taken away
/// from anybody. (C52)
#[test]
fn c52_wrong_clocks_cost_no_pod_its_place() -> Result<()> {
    play(
        3,
        vec![job("sync", 5 * SECOND, model(2, 100))?],
        async |s| {
            s.pod(1).wall().step(300_000);
            s.pod(2).wall().step(-300_000);
            s.wait(20 * SECOND).await;
            let window = settings().subscribers.window.get();
            for _ in 0..120 {
                s.wait(SECOND).await;
                let (now, pods) = (s.store().now().await?, s.store().pods().await?);
                let live = pods.iter().filter(|pod| pod.is_active(now, window));
                ensure!(live.count() == 3, "{pods:?}");
            }
            for run in s.runs("sync").await? {
                ensure!(run.attempts.len() <= 1 && run.recoveries == 0, "{run:?}");
            }
            let log = s.store().execution_log(None, 10_000).await?;
            let moved = log.iter().find(|event| event.event == "run.recovered");
            ensure!(moved.is_none(), "{moved:?}");
            Ok(())
        },
    )
}

/// The job's lock names another attempt than the one that stands in the register: that one is found, since
/// the scan compares the lock's value. (C55)
#[test]
fn c55_an_attempt_behind_anothers_lock_is_found() -> Result<()> {
    play(
        2,
        vec![job("sync", 300 * SECOND, model(40, 500))?],
        async |s| {
            let run = s.run_in("sync", RunState::Running).await?;
            let at = s.executing(&run.run).await?;
            s.wait(2 * SECOND).await;
            s.pod(at).kill();
            s.world.engine.edit(|tx| {
                let key = Key::named("sync");
                let lock = tx.get::<Lock>(&key)?.expect("a lock");
                let mut other = Lock::clone(&lock);
                other.fence.0 += 1;
                other.expires_at = other.expires_at + 3_600 * SECOND;
                tx.put(key, other)
            })?;
            let ended = s.end_of(&run.run).await?;
            ensure!(ended.state == RunState::Succeeded, "{ended:?}");
            let lost = ended.attempts.first().and_then(|one| one.outcome.clone());
            ensure!(matches!(lost, Some(Outcome::Lost { .. })), "{ended:?}");
            s.pod(at).start();
            Ok(())
        },
    )
}
