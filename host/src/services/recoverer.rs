//! Looks for what stands still, and sends it on or gives it up, while this pod leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wasmcron_core::decide::publish::{NoPod, Picker};
use wasmcron_core::decide::recover::{
    self, ACTIONS_MAX, Action, Past, Recover, RecoverPolicy, SeenAs,
};
use wasmcron_core::decide::wait::{self, GiveUp};
use wasmcron_core::ids::{Digest, JobName, PodAddress, RunId};
use wasmcron_core::run::RunState;
use wasmcron_core::task::Task;
use wasmcron_core::view::{
    JobView, LockHolder, Pod as PodView, RunningEntry, ScheduledEntry, Successes,
};
use wasmcron_store::StoreError;
use wasmcron_store::control::Wake;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::recovery::{EntryId, Losing, Loss, Register, Republished, Seen};

use super::outage::Outage;
use super::overdue;
use super::pod::Pod;

/// Runs until the pod's loops end.
pub async fn run(pod: Arc<Pod>) {
    let outage = Outage::new("recoverer", &pod.health);
    let mut wakes = pod.wakes.subscribe();
    let mut lead = pod.lead.clone();
    let mut scan = Scan::new(&pod);
    loop {
        if pod.lead.term().is_none() {
            outage.idle();
        }
        let term = tokio::select! {
            biased;
            () = pod.stopped.cancelled() => return,
            term = lead.wait() => term,
        };
        let wait = match scan.look(&pod, &term).await {
            Ok(wait) => {
                outage.answered();
                wait
            }
            Err(error) => outage.failed(&error, &pod.metrics),
        };
        let until = tokio::time::Instant::now() + wait;
        loop {
            tokio::select! {
                // The timer comes before wake-ups: most of them are not for this loop.
                biased;
                () = pod.stopped.cancelled() => return,
                () = tokio::time::sleep_until(until) => break,
                wake = wakes.recv() => if matches!(wake, Ok(Wake::Left { .. } | Wake::Subscribed)) { break },
            }
        }
    }
}

/// One leader's looking.
struct Scan {
    policy: RecoverPolicy,
    limit: Duration,
    picker: Picker,
}

/// What one look found.
#[derive(Default)]
struct Found {
    actions: Vec<(Recover, JobName)>,
    /// Tasks that stand in queues, and for how long.
    queued: BTreeMap<RunId, (Task, Duration)>,
    locks: Vec<Option<LockHolder>>,
}

impl Scan {
    fn new(pod: &Pod) -> Self {
        let settings = &pod.settings.recovery;
        Scan {
            policy: RecoverPolicy {
                active_window: pod.settings.active_window(),
                scheduled_too_long: settings.scheduled_too_long.get(),
                session_grace: settings.session_grace.get(),
                max_recoveries: settings.max_recoveries,
                auto_rerun_max_average: settings.auto_rerun_max_average.get(),
            },
            limit: settings.scan.get(),
            picker: Picker::default(),
        }
    }

    /// Looks once and acts; answers when to look again.
    async fn look(&mut self, pod: &Pod, term: &TermRef) -> Result<Duration, StoreError> {
        let mut found = Found::default();
        let pods = self.scan_scheduled(pod, term, &mut found).await?;
        self.scan_running(pod, term, &mut found).await?;
        if !found.actions.is_empty() {
            let pods = if pods.is_empty() {
                pod.store.pods().await?
            } else {
                pods.into_values().collect()
            };
            self.picker
                .refresh(pods, pod.clock.now(), self.policy.active_window);
            for (action, job) in found.actions.into_iter().take(ACTIONS_MAX) {
                let queued = found.queued.get(&action.run);
                self.apply(pod, term, action, &job, queued).await?;
            }
        }
        Ok(recover::next_look(&found.locks, self.limit))
    }

    async fn scan_scheduled(
        &self,
        pod: &Pod,
        term: &TermRef,
        found: &mut Found,
    ) -> Result<BTreeMap<PodAddress, PodView>, StoreError> {
        let mut pods = BTreeMap::new();
        let mut cursor = None;
        loop {
            let page = pod.store.scheduled(cursor).await?;
            self.bury(pod, term, Register::Scheduled, &page.corrupt)
                .await?;
            if pods.is_empty() && !page.entries.is_empty() {
                pods = pod
                    .store
                    .pods()
                    .await?
                    .into_iter()
                    .map(|one| (one.address.clone(), one))
                    .collect();
            }
            overdue::end(pod, term, &page.entries).await?;
            let now = pod.clock.now();
            let verdict = |entry: &ScheduledEntry, count| {
                recover::scheduled(entry, &pods, count, now, &self.policy)
            };
            // Most entries are well: the count of recoveries is read for the others only.
            let ill: Vec<_> = page
                .entries
                .iter()
                .filter(|entry| verdict(entry, 0).is_some())
                .collect();
            let runs: Vec<RunId> = ill.iter().map(|entry| entry.task.run.clone()).collect();
            let counts = if runs.is_empty() {
                Vec::new()
            } else {
                pod.store.recoveries(&runs).await?
            };
            for (entry, count) in ill.iter().zip(counts) {
                let waited = now.since(entry.published_at);
                found
                    .queued
                    .insert(entry.task.run.clone(), (entry.task.clone(), waited));
                found
                    .actions
                    .extend(verdict(entry, count).map(|action| (action, entry.task.job.clone())));
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(pods);
            }
        }
    }

    async fn scan_running(
        &self,
        pod: &Pod,
        term: &TermRef,
        found: &mut Found,
    ) -> Result<(), StoreError> {
        let mut cursor = None;
        loop {
            let page = pod.store.running(cursor).await?;
            self.bury(pod, term, Register::Running, &page.corrupt)
                .await?;
            if !page.entries.is_empty() {
                self.judge_running(pod, &page.entries, found).await?;
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    async fn judge_running(
        &self,
        pod: &Pod,
        entries: &[RunningEntry],
        found: &mut Found,
    ) -> Result<(), StoreError> {
        let jobs: Vec<JobName> = entries.iter().map(|entry| entry.task.job.clone()).collect();
        let locks = pod.store.locks(&jobs).await?;
        let lost = |(entry, lock): &(&RunningEntry, &Option<LockHolder>)| {
            lock.as_ref().is_none_or(|lock| lock.fence != entry.fence)
        };
        let ill: Vec<_> = entries.iter().zip(&locks).filter(lost).collect();
        let runs: Vec<RunId> = ill
            .iter()
            .map(|(entry, _)| entry.task.run.clone())
            .collect();
        let counts = if runs.is_empty() {
            Vec::new()
        } else {
            pod.store.recoveries(&runs).await?
        };
        for ((entry, lock), recoveries) in ill.into_iter().zip(counts) {
            let view: Option<JobView> = pod.store.job(&entry.task.job).await?;
            let past = Past {
                definition: view.as_ref().map(|view| &view.stored.definition),
                successes: view
                    .as_ref()
                    .map_or_else(Successes::default, |view| view.successes),
                recoveries,
            };
            let verdict = recover::running(entry, lock.as_ref(), past, &self.policy);
            found
                .actions
                .extend(verdict.map(|action| (action, entry.task.job.clone())));
        }
        found.locks.extend(locks);
        Ok(())
    }

    async fn bury(
        &self,
        pod: &Pod,
        term: &TermRef,
        register: Register,
        broken: &[EntryId],
    ) -> Result<(), StoreError> {
        for id in broken {
            if pod.store.bury(term, register, id, pod.retention()).await? {
                tracing::error!(entry = %id, ?register, "an entry that does not decode went to the dead letters");
            }
        }
        Ok(())
    }

    async fn apply(
        &mut self,
        pod: &Pod,
        term: &TermRef,
        found: Recover,
        job: &JobName,
        queued: Option<&(Task, Duration)>,
    ) -> Result<(), StoreError> {
        let seen = match found.seen {
            SeenAs::Scheduled(delivery) => Seen::Scheduled(delivery),
            SeenAs::Running(fence) => Seen::Running(fence),
        };
        match found.action {
            Action::Republish { why, counted } => {
                let moved = self
                    .republish(pod, term, &found.run, job, seen, &why, counted)
                    .await?;
                match (moved, queued) {
                    (Err(none), Some((task, waited))) => {
                        give_up_waiting(pod, term, task, seen, *waited, &none).await
                    }
                    _ => Ok(()),
                }
            }
            Action::Lose { why, quarantine } => {
                let digest = if quarantine {
                    latest_version(pod, &found.run).await?
                } else {
                    None
                };
                let loss = Loss {
                    state: RunState::Lost,
                    reason: why.clone(),
                    quarantine,
                    digest,
                    retention: pod.retention(),
                };
                if pod.store.lose(term, &found.run, seen, &loss).await? == Losing::Lost {
                    pod.metrics.event("run.lost");
                    if quarantine {
                        pod.metrics.poisoned.inc();
                    }
                    tracing::error!(run = %found.run, term = %term.term, %why, quarantine, "run.lost");
                }
                Ok(())
            }
        }
    }

    /// Sends a run to another pod; says so if there is none.
    #[allow(
        clippy::too_many_arguments,
        reason = "the facts of one recovery, used once"
    )]
    async fn republish(
        &mut self,
        pod: &Pod,
        term: &TermRef,
        run: &RunId,
        job: &JobName,
        seen: Seen,
        why: &str,
        counted: bool,
    ) -> Result<Result<(), NoPod>, StoreError> {
        let Some(view) = pod.store.job(job).await? else {
            let loss = Loss {
                state: RunState::Lost,
                reason: format!("{why}; the job is no longer defined"),
                quarantine: false,
                digest: None,
                retention: pod.retention(),
            };
            pod.store.lose(term, run, seen, &loss).await?;
            return Ok(Ok(()));
        };
        if let Some(over) = out_of_time(pod, run, &view).await? {
            let loss = Loss {
                state: over.state,
                reason: format!("{}: {why}", over.why),
                quarantine: false,
                digest: None,
                retention: pod.retention(),
            };
            if pod.store.lose(term, run, seen, &loss).await? == Losing::Lost {
                pod.metrics.event("run.lost");
                tracing::warn!(%run, why = %loss.reason, "run.lost");
            }
            return Ok(Ok(()));
        }
        let to = match self.picker.pick(job.as_str(), &view.stored.definition, &[]) {
            Ok(to) => to,
            Err(none) => {
                pod.metrics
                    .publish_failed
                    .with_label_values(&["recovery"])
                    .inc();
                tracing::debug!(%run, why = %none, "a run to be recovered waits for a pod");
                return Ok(Err(none));
            }
        };
        match pod
            .store
            .republish(term, run, seen, &to, why, counted)
            .await?
        {
            Republished::Republished => {
                pod.metrics.event("run.recovered");
                tracing::warn!(%run, pod = %to, term = %term.term, why, "run.recovered");
            }
            Republished::Cancelled => {
                pod.metrics.event("run.finished");
                tracing::info!(%run, why, outcome = "cancelled", "run.finished");
            }
            Republished::NoPod => self.picker.exclude(&to),
            Republished::Changed | Republished::Alive | Republished::NotLeader => {}
        }
        Ok(Ok(()))
    }
}

/// Whether the run is past its own time-out.
async fn out_of_time(pod: &Pod, run: &RunId, view: &JobView) -> Result<Option<GiveUp>, StoreError> {
    let definition = &view.stored.definition;
    if definition.run_timeout.is_none() {
        return Ok(None);
    }
    let began = pod.store.began(std::slice::from_ref(run)).await?;
    let began = began.into_iter().next().flatten();
    Ok(wait::out_of_time(definition, began, pod.clock.now()))
}

/// The plugin version that the run's latest attempt ran.
async fn latest_version(pod: &Pod, run: &RunId) -> Result<Option<Digest>, StoreError> {
    let record = pod.store.run(run).await?;
    let attempts = record.map(|record| record.attempts).unwrap_or_default();
    Ok(attempts
        .into_iter()
        .rev()
        .find_map(|attempt| attempt.digest))
}

/// Ends a firing that stands in the queue of a dead pod, has not begun, and found no other pod within
/// its job's misfire grace.
async fn give_up_waiting(
    pod: &Pod,
    term: &TermRef,
    task: &Task,
    seen: Seen,
    waited: Duration,
    none: &NoPod,
) -> Result<(), StoreError> {
    let Some(view) = pod.store.job(&task.job).await? else {
        return Ok(());
    };
    let why = none.to_string();
    let Some(over) = wait::no_pod(&view.stored.definition, task, waited, &why) else {
        return Ok(());
    };
    let loss = Loss {
        state: over.state,
        reason: over.why,
        quarantine: false,
        digest: None,
        retention: pod.retention(),
    };
    if pod.store.lose(term, &task.run, seen, &loss).await? == Losing::Lost {
        pod.metrics.trigger(task.job.as_str(), "missed");
        pod.metrics.missed.inc();
        pod.metrics.event("firing.missed");
        tracing::warn!(run = %task.run, why = %loss.reason, "firing.missed");
    }
    Ok(())
}
