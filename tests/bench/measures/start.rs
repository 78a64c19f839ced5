//! How soon an idle pod starts what was published.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use wasmcron_core::ids::RunId;
use wasmcron_core::run::{RunRecord, RunState};
use wasmcron_core::task::{Reason, Task};
use wasmcron_store::schedule::{Submission, Submitted};
use wasmcron_tests::redis_server::RedisServer;

use crate::pod::{Monitor, Site};
use crate::raw::Raw;
use crate::report::Figure;
use crate::stats::{millis, percentile};

/// Runs, one at a time.
const RUNS: u64 = 300;
/// The job that is run by hand.
const JOB: &str = "watch";
/// How often the end of a run is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// Characters of a ULID, without those it does not use.
const DIGITS: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Asks for runs by hand; the guest reads the clock as its first deed.
pub async fn measure() -> Result<Vec<Figure>> {
    let site = Site::new(&["stopwatch"]).await?;
    site.job(JOB, "stopwatch", "")?;
    let _pod = site.pod(1).await?;
    let monitor = Monitor::start(site.redis.port()).await?;
    let (mut published, mut asked) = (Vec::new(), Vec::new());
    for n in 0..RUNS {
        tokio::time::sleep(pause()).await;
        let (run, at) = ask(&site, n).await?;
        let began = began(&ended(&site, &run).await?)?;
        let pushed = monitor
            .pushed(run.as_str())
            .context("an entry in a queue")?;
        published.push(Duration::from_nanos(began.saturating_sub(pushed)));
        asked.push(Duration::from_nanos(began.saturating_sub(at)));
    }
    let bare = handovers().await?;
    let at = |times: &[Duration], share| millis(percentile(times, share));
    Ok(vec![
        Figure::new(
            "published to first instruction, p50",
            "ms",
            at(&published, 0.5),
        )
        .raw(at(&bare, 0.5))
        .at_most(1.0),
        Figure::new(
            "published to first instruction, p99",
            "ms",
            at(&published, 0.99),
        )
        .raw(at(&bare, 0.99))
        .at_most(3.0)
        .note("raw: published to claimed"),
        Figure::new("triggered to first instruction, p50", "ms", at(&asked, 0.5)),
        Figure::new(
            "triggered to first instruction, p99",
            "ms",
            at(&asked, 0.99),
        ),
    ])
}

/// An idle time, so that the processors sleep between two runs as they do in service.
fn pause() -> Duration {
    Duration::from_micros(fastrand::u64(10_000..40_000))
}

/// Asks for a run; answers it and when that was, in nanoseconds since 1970.
async fn ask(site: &Site, n: u64) -> Result<(RunId, u64)> {
    let digit = |shift: u32| {
        let place = usize::try_from(n >> shift & 31).unwrap_or(0);
        char::from(DIGITS[place])
    };
    let id: String = [10, 5, 0].map(digit).iter().collect();
    let run = RunId::new(&format!("{JOB}@01JDX{:0>21}", id))?;
    let now = site.store.now().await?;
    let task = Task::first(run, now, Reason::Manual, "{}".into());
    let submission = Submission {
        task,
        idempotency: None,
    };
    let at = crate::now_nanos();
    match site.store.submit(&submission).await? {
        Submitted::Accepted { run } => Ok((run, at)),
        other => anyhow::bail!("a trigger was answered {other:?}"),
    }
}

async fn ended(site: &Site, run: &RunId) -> Result<RunRecord> {
    loop {
        tokio::time::sleep(LOOK).await;
        let record = site.store.run(run).await?.context("a run")?;
        if record.state.is_ended() {
            ensure!(record.state == RunState::Succeeded, "{run}: {record:?}");
            return Ok(record);
        }
    }
}

/// When the guest began, in nanoseconds since 1970.
pub fn began(record: &RunRecord) -> Result<u64> {
    let attempt = record.attempts.last().context("an attempt")?;
    let outcome = attempt.outcome.as_ref().context("an outcome")?;
    outcome.message().parse().context("the guest's clock")
}

/// The same without a pod: published to claimed.
async fn handovers() -> Result<Vec<Duration>> {
    let server = RedisServer::start().await;
    let mut raw = Raw::new(&server, usize::try_from(RUNS)?).await?;
    let requests = raw.publishes(1, 1).await?;
    raw.learn().await?;
    let monitor = Monitor::start(server.port()).await?;
    let claimed = raw.handovers(&requests, pause).await?;
    claimed
        .iter()
        .map(|(run, at)| {
            let pushed = monitor.pushed(run).context("an entry in a queue")?;
            Ok(Duration::from_nanos(at.saturating_sub(pushed)))
        })
        .collect()
}
