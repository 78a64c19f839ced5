//! What this pod counts. `/metrics` shows it in Prometheus' text format.

use std::time::Duration;

use anyhow::Result;
use prometheus::{
    Encoder as _, Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

/// Buckets for how long things take, in seconds: from a no-op to an hour.
const LATENCY_BUCKETS: [f64; 16] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0,
    3600.0,
];

/// Most job names that become label values; jobs beyond share the label `other`, so that a fleet with
/// a hundred thousand jobs does not drown its Prometheus.
const JOB_LABELS_MAX: usize = 2_000;

/// All series of a pod.
pub struct Metrics {
    registry: Registry,
    job_labels: std::sync::Mutex<std::collections::BTreeSet<String>>,
    /// Firings by job and what became of them: `fired`, `dedup`, `missed`, `skipped`.
    pub triggers: IntCounterVec,
    /// From the nominal time to the end of the run, by job.
    pub latency: HistogramVec,
    /// From due to the guest's first instruction.
    pub start_delay: HistogramVec,
    /// 1 while this pod leads.
    pub is_leader: IntGauge,
    /// Events by name, as in the logs.
    pub events: IntCounterVec,
    /// Ended attempts by outcome.
    pub outcomes: IntCounterVec,
    /// Firings that found no pod, by reason.
    pub publish_failed: IntCounterVec,
    /// Nominal times answered as missed.
    pub missed: IntCounter,
    /// Refused new versions of plugins and job files.
    pub reload_failed: IntCounterVec,
    /// Plugins and job files taken into service.
    pub reloaded: IntCounterVec,
    /// Writes refused because another attempt owns the run.
    pub fenced: IntCounter,
    /// Jobs quarantined by this leader.
    pub poisoned: IntCounter,
    /// Executing attempts.
    pub running: IntGauge,
    /// Store errors by verb.
    pub store_errors: IntCounterVec,
    /// The store's clock minus this machine's.
    pub clock_offset: Gauge,
    /// Pods this leader takes for alive.
    pub live_pods: IntGauge,
    /// Jobs that this leader knows.
    pub jobs: IntGauge,
    /// Log lines of guests that were dropped.
    pub log_dropped: IntCounter,
}

impl Metrics {
    /// Registers every series.
    ///
    /// # Errors
    /// When two series share a name, which is a defect.
    pub fn new() -> Result<Self> {
        let registry = Registry::new();
        let register = Register(&registry);
        Ok(Metrics {
            triggers: register.counters(
                "scheduler_job_trigger_total",
                "Firings by job and what became of them",
                &["job_id", "status"],
            )?,
            latency: register.histograms(
                "scheduler_job_latency_seconds",
                "From the nominal time of a run to its end",
                &["job_id"],
            )?,
            start_delay: register.histograms(
                "wasmcron_start_delay_seconds",
                "From the moment a run was due to the first instruction of its guest",
                &[],
            )?,
            is_leader: register.gauge("scheduler_is_leader", "1 while this pod leads")?,
            events: register.counters("wasmcron_events_total", "Events by name", &["event"])?,
            outcomes: register.counters(
                "wasmcron_attempts_total",
                "Ended attempts by outcome",
                &["outcome"],
            )?,
            publish_failed: register.counters(
                "publish_failed_total",
                "Looks at a due firing that found no pod, by reason",
                &["reason"],
            )?,
            missed: register.counter("missed_total", "Nominal times answered as missed")?,
            reload_failed: register.counters(
                "reload_failed_total",
                "Refused new versions of plugins and job files",
                &["kind"],
            )?,
            reloaded: register.counters(
                "wasmcron_reloads_total",
                "Changes taken into service",
                &["kind"],
            )?,
            fenced: register.counter("wasmcron_fenced_total", "Writes refused to a straggler")?,
            poisoned: register.counter(
                "poisoned_total",
                "Jobs quarantined after too many recoveries",
            )?,
            running: register.gauge("wasmcron_attempts_running", "Executing attempts")?,
            store_errors: register.counters(
                "wasmcron_store_errors_total",
                "Store errors by loop",
                &["loop"],
            )?,
            clock_offset: register.float_gauge(
                "wasmcron_store_clock_offset_seconds",
                "The store's clock minus this machine's wall clock",
            )?,
            live_pods: register.gauge(
                "wasmcron_live_pods",
                "Pods that this leader takes for alive",
            )?,
            jobs: register.gauge("wasmcron_jobs", "Jobs that this leader knows")?,
            log_dropped: register.counter(
                "wasmcron_guest_log_dropped_total",
                "Dropped log lines of guests",
            )?,
            job_labels: std::sync::Mutex::default(),
            registry,
        })
    }

    /// The label of a job.
    #[must_use]
    pub fn job_label<'a>(&self, job: &'a str) -> &'a str {
        let mut known = self
            .job_labels
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.contains(job) {
            return job;
        }
        if known.len() >= JOB_LABELS_MAX {
            return "other";
        }
        known.insert(job.to_owned());
        job
    }

    /// Counts a firing.
    pub fn trigger(&self, job: &str, status: &str) {
        self.triggers
            .with_label_values(&[self.job_label(job), status])
            .inc();
    }

    /// Notes how long a run took from its nominal time to its end.
    pub fn run_ended(&self, job: &str, latency: Duration) {
        self.latency
            .with_label_values(&[self.job_label(job)])
            .observe(latency.as_secs_f64());
    }

    /// Counts an event.
    pub fn event(&self, name: &str) {
        self.events.with_label_values(&[name]).inc();
    }

    /// Prometheus' text format.
    ///
    /// # Errors
    /// When a series cannot be encoded, which is a defect.
    pub fn encode(&self) -> Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8(text)?)
    }
}

struct Register<'a>(&'a Registry);

impl Register<'_> {
    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        let series = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(series.clone()))?;
        Ok(series)
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec> {
        let options = HistogramOpts::new(name, help).buckets(LATENCY_BUCKETS.to_vec());
        let series = HistogramVec::new(options, labels)?;
        self.0.register(Box::new(series.clone()))?;
        Ok(series)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        let series = IntCounter::new(name, help)?;
        self.0.register(Box::new(series.clone()))?;
        Ok(series)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge> {
        let series = IntGauge::new(name, help)?;
        self.0.register(Box::new(series.clone()))?;
        Ok(series)
    }

    fn float_gauge(&self, name: &str, help: &str) -> Result<Gauge> {
        let series = Gauge::new(name, help)?;
        self.0.register(Box::new(series.clone()))?;
        Ok(series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_articles_series_have_their_names() {
        let metrics = Metrics::new().expect("series");
        metrics.trigger("sync", "fired");
        metrics.run_ended("sync", Duration::from_secs(1));
        let text = metrics.encode().expect("text");
        for line in [
            "scheduler_job_trigger_total{job_id=\"sync\",status=\"fired\"} 1",
            "scheduler_job_latency_seconds_count{job_id=\"sync\"} 1",
            "scheduler_is_leader 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn job_labels_are_bounded() {
        let metrics = Metrics::new().expect("series");
        for n in 0..JOB_LABELS_MAX {
            metrics.trigger(&format!("job-{n}"), "fired");
        }
        assert_eq!(metrics.job_label("one-more"), "other");
        assert_eq!(metrics.job_label("job-0"), "job-0");
    }
}
