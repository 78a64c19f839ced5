//! Whole no-op runs on one pod, from their due time to their end, and what they cost.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use wasmcron_core::time::Timestamp;
use wasmcron_tests::redis_server::RedisServer;

use crate::pod::{Site, processor_seconds};
use crate::raw::Raw;
use crate::report::Figure;
use crate::stats::{median, rate};
use crate::wire::Wire;
use wasmcron_tests::fleet::PodProcess;

/// Connections of the raw runs.
pub const CONNECTIONS: usize = 50;
const ROUNDS: u64 = 3;
/// Between two firings of the jobs, in seconds: a multiple divides a minute.
const PERIOD: i64 = 20;
/// A little before the firing, when the counters are read.
const BEFORE: Duration = Duration::from_millis(300);
/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// How long the runs of one firing may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most entries of the execution log in one page.
const PAGE: usize = 1_000;
/// The commands that a pod sends while it works: scripts and the blocking take.
const COMMANDS: [&str; 3] = ["evalsha", "eval", "blmove"];

/// What one firing of all jobs showed.
struct Round {
    rate: f64,
    /// Of the pod and of the server.
    processor: (f64, f64),
    commands: f64,
}

/// Lets `runs` jobs fire at the same instant, a few times.
pub async fn measure(runs: usize) -> Result<Vec<Figure>> {
    let site = Site::new(&["hello"]).await?;
    for n in 0..runs {
        site.job(
            &format!("noop-{n:06}"),
            "hello",
            "cron = \"*/20 * * * * *\"",
        )?;
    }
    let pod = site.pod(u64::try_from(runs)?).await?;
    let server = RedisServer::start().await;
    let mut raw = Raw::new(&server, runs).await?;
    // The first firing warms caches up, and its requests teach the raw runs.
    round(&site, &pod, runs).await?;
    raw.publishes(1, 100).await?;
    raw.learn().await?;
    let mut requests = Vec::new();
    for at in 0..ROUNDS {
        requests.push(raw.publishes(at + 2, 100).await?);
    }
    let (raw, mut ours, mut bare) = (Arc::new(raw), Vec::new(), Vec::new());
    for requests in requests {
        ours.push(round(&site, &pod, runs).await?);
        bare.push(rate(runs, raw.whole_runs(requests, CONNECTIONS).await?));
    }
    let middle = |of: fn(&Round) -> f64| median(ours.iter().map(of).collect());
    let bare = median(bare);
    let pod = middle(|round| round.processor.0);
    let store = middle(|round| round.processor.1);
    Ok(vec![
        Figure::new(
            "whole no-op runs, one pod",
            "runs/s",
            middle(|round| round.rate),
        )
        .raw(bare)
        .at_least(3_000.0)
        .note(format!(
            "required; the goal is 0.6 × raw = {:.0}",
            0.6 * bare
        )),
        Figure::new(
            "requests to the store a run",
            "requests",
            middle(|round| round.commands),
        )
        .at_most(5.0),
        Figure::new("processor time a 1,000 runs", "s", pod + store)
            .at_most(0.24)
            .note(format!("pod {pod:.2}, store {store:.2}")),
    ])
}

/// Waits for the next firing and measures it.
async fn round(site: &Site, pod: &PodProcess, runs: usize) -> Result<Round> {
    let mut wire = Wire::connect(site.redis.port()).await?;
    let now = site.store.now().await?;
    // Far enough ahead that what went before is over.
    let due = ((now.as_millis() + 2_000) / (PERIOD * 1_000) + 1) * PERIOD * 1_000;
    let due = Timestamp::from_millis(due);
    tokio::time::sleep(due.since(now).saturating_sub(BEFORE)).await;
    let after = last_event(&mut wire).await?;
    wire.command(&["CONFIG", "RESETSTAT"]).await?;
    let (pod, redis) = (pod.id()?, site.redis.id());
    let used = || anyhow::Ok((processor_seconds(pod)?, processor_seconds(redis)?));
    let before = used()?;
    tokio::time::sleep(BEFORE + LOOK).await;
    let began = std::time::Instant::now();
    loop {
        let counts = site.store.counts().await?;
        if counts.scheduled + counts.running == 0 {
            break;
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "the runs do not end: {counts:?}"
        );
        tokio::time::sleep(LOOK).await;
    }
    let after_all = used()?;
    let commands = commands(&mut wire).await?;
    let last = last_finish(site, after, runs).await?;
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let count = runs as f64;
    Ok(Round {
        rate: rate(runs, last.since(due)),
        processor: (
            (after_all.0 - before.0) / count * 1e3,
            (after_all.1 - before.1) / count * 1e3,
        ),
        commands: commands / count,
    })
}

/// The position of the latest entry in the execution log.
async fn last_event(wire: &mut Wire) -> Result<Option<String>> {
    let key = "{distributed_scheduler}:execution_log";
    let newest = wire
        .command(&["XREVRANGE", key, "+", "-", "COUNT", "1"])
        .await?;
    let id = newest.many().first().and_then(|entry| entry.many().first());
    Ok(id.map(|id| String::from_utf8_lossy(id.text()).into_owned()))
}

/// When the last run ended; all must have.
async fn last_finish(site: &Site, mut after: Option<String>, runs: usize) -> Result<Timestamp> {
    let (mut ended, mut last) = (0, Timestamp::EPOCH);
    loop {
        let page = site.store.execution_log(after.as_deref(), PAGE).await?;
        let Some(newest) = page.last() else { break };
        after = Some(newest.id.clone());
        for event in page.iter().filter(|event| event.event == "run.finished") {
            ended += 1;
            last = last.max(event.at);
        }
    }
    ensure!(ended == runs, "{ended} of {runs} runs ended");
    Ok(last)
}

/// Requests since the last reset.
async fn commands(wire: &mut Wire) -> Result<f64> {
    let info = wire.command(&["INFO", "commandstats"]).await?;
    let text = String::from_utf8_lossy(info.text()).into_owned();
    let mut sum = 0.0;
    for name in COMMANDS {
        let begin = format!("cmdstat_{name}:calls=");
        let line = text.lines().find_map(|line| line.strip_prefix(&begin));
        if let Some(line) = line {
            let calls = line.split(',').next().context("calls")?;
            sum += calls.parse::<f64>()?;
        }
    }
    Ok(sum)
}
