//! How late a thousand jobs start that are due every second.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use wasmcron_core::schedule::{Schedule, Trigger};
use wasmcron_core::time::Timestamp;
use wasmcron_store::schedule::PUBLISH_MAX;
use wasmcron_tests::redis_server::RedisServer;

use super::runs::CONNECTIONS;
use super::start::began;
use crate::pod::Site;
use crate::raw::Raw;
use crate::report::Figure;
use crate::stats::{millis, percentile};

const JOBS: usize = 1_000;
/// Firings of each job that count.
const SECONDS: usize = 15;
/// What the pod gets to become steady.
const WARM_UP: Duration = Duration::from_secs(3);
/// What the last firings get to end.
const REST: Duration = Duration::from_secs(3);
/// By how much the firings of one second are spread.
const SPREAD: Duration = Duration::from_millis(900);

/// All at the same instant, and spread over the second.
pub async fn measure() -> Result<Vec<Figure>> {
    let mut figures = one("at one instant", Duration::ZERO).await?;
    let all = at_once().await?;
    for (figure, share) in figures.iter_mut().zip([0.5, 0.99]) {
        figure.raw = Some(millis(all.mul_f64(share)));
        figure.note = "raw: when the store had run such a share of them".into();
    }
    figures.extend(one("spread by jitter", SPREAD).await?);
    Ok(figures)
}

/// How long the store takes for as many runs when nothing is executed.
async fn at_once() -> Result<Duration> {
    let server = RedisServer::start().await;
    let mut raw = Raw::new(&server, JOBS).await?;
    raw.publishes(1, PUBLISH_MAX).await?;
    raw.learn().await?;
    let requests = raw.publishes(2, PUBLISH_MAX).await?;
    Arc::new(raw).whole_runs(requests, CONNECTIONS).await
}

async fn one(how: &str, jitter: Duration) -> Result<Vec<Figure>> {
    let site = Site::new(&["stopwatch"]).await?;
    let name = |n: usize| format!("late-{n:04}");
    for n in 0..JOBS {
        let schedule = format!("every = \"1s\"\njitter = \"{}ms\"", jitter.as_millis());
        site.job(&name(n), "stopwatch", &schedule)?;
    }
    let pod = site.pod(u64::try_from(JOBS)?).await?;
    tokio::time::sleep(WARM_UP).await;
    let from = site.store.now().await?;
    let until = from + Duration::from_secs(u64::try_from(SECONDS)?);
    tokio::time::sleep(until.since(from) + REST).await;
    drop(pod);
    let schedule = Schedule {
        trigger: Trigger::Every {
            period: Duration::from_secs(1),
        },
        starts: None,
        ends: None,
        jitter,
    };
    let mut late = Vec::new();
    for n in 0..JOBS {
        let job = name(n).parse()?;
        for record in site.store.runs(&job, SECONDS * 2 + 20).await? {
            if record.nominal <= from || record.nominal > until {
                continue;
            }
            if let Ok(began) = began(&record) {
                late.push(lateness(began, schedule.due_at(&job, record.nominal)));
            }
        }
    }
    let missed = (JOBS * SECONDS).saturating_sub(late.len());
    let at = |share| millis(percentile(&late, share));
    let what = format!("1,000 jobs each second, {how}");
    #[allow(clippy::cast_precision_loss, reason = "a small count")]
    let missed = missed as f64;
    Ok(vec![
        Figure::new(format!("{what}: lateness p50"), "ms", at(0.5)).at_most(5.0),
        Figure::new(format!("{what}: lateness p99"), "ms", at(0.99)).at_most(20.0),
        Figure::new(format!("{what}: missed"), "of 15,000", missed).at_most(0.0),
    ])
}

fn lateness(began: u64, due: Timestamp) -> Duration {
    let due = u64::try_from(due.as_millis()).unwrap_or(0) * 1_000_000;
    Duration::from_nanos(began.saturating_sub(due))
}
