//! How soon a fresh sandbox executes its guest's first instruction.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use bytes::Bytes;
use wasmcron_runtime::{
    AttemptControl, AttemptEnd, AttemptHost, AttemptSpec, Call, CallReason, Grants, Limits,
    LogLine, PoolConfig, Progress, Runtime, RuntimeConfig, WriteRefused,
};
use wasmcron_tests::guests;

use crate::report::Figure;
use crate::stats::percentile;

const STARTS: usize = 3_000;
/// Starts that do not count.
const WARM_UP: usize = 200;

/// One attempt after the other, in this process.
pub async fn measure() -> Result<Vec<Figure>> {
    // As a pod has it, whose limit of memory is 1 GiB unless set.
    let runtime = Runtime::new(RuntimeConfig {
        pool: Some(PoolConfig::for_attempts(4, 1 << 30)),
        ..RuntimeConfig::default()
    })?;
    let bytes = Bytes::from(guests::bytes("stopwatch")?);
    let plugin = runtime.load("stopwatch", bytes).await?;
    let mut times = Vec::new();
    for n in 0..WARM_UP + STARTS {
        let asked = crate::now_nanos();
        let report = runtime.execute(&plugin, attempt(), Arc::new(Nobody)).await;
        let AttemptEnd::Done { summary } = report.end else {
            bail!("an attempt ended with {:?}", report.end);
        };
        let began: u64 = summary.parse().context("the guest's clock")?;
        if n >= WARM_UP {
            times.push(Duration::from_nanos(began.saturating_sub(asked)));
        }
    }
    let micros = |share| percentile(&times, share).as_secs_f64() * 1e6;
    Ok(vec![
        Figure::new("sandbox to first instruction, p50", "µs", micros(0.5)).at_most(100.0),
        Figure::new("sandbox to first instruction, p99", "µs", micros(0.99)),
    ])
}

fn attempt() -> AttemptSpec {
    let now = "2026-11-29T01:00:00Z";
    AttemptSpec {
        call: Call {
            job: "watch".into(),
            run_id: format!("watch@{now}"),
            attempt: 1,
            nominal_time: now.into(),
            actual_time: now.into(),
            previous_success: None,
            deadline: None,
            reason: CallReason::Scheduled,
            parameters: "{}".into(),
            fence: 1,
        },
        limits: Limits::default(),
        grants: Arc::new(Grants::default()),
        checkpoint: None,
        control: AttemptControl::new(),
    }
}

/// A host without a store.
struct Nobody;

#[async_trait]
impl AttemptHost for Nobody {
    async fn save_checkpoint(&self, _: Bytes) -> Result<(), WriteRefused> {
        Ok(())
    }

    async fn state_get(&self, _: &str) -> Result<Option<Bytes>, WriteRefused> {
        Ok(None)
    }

    async fn state_set(&self, _: &str, _: Bytes) -> Result<(), WriteRefused> {
        Ok(())
    }

    async fn state_delete(&self, _: &str) -> Result<(), WriteRefused> {
        Ok(())
    }

    fn log(&self, _: LogLine) {}

    fn progress(&self, _: Progress) {}

    async fn secret(&self, _: &str) -> Result<String, String> {
        Err("there is none".into())
    }
}
