//! Follows the job files, and what plugins make of them.
//!
//! A file that is refused changes nothing: the last good version of its job goes on, and the refusal
//! is said once for each content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::Instant;
use wasmcron_core::ids::JobName;
use wasmcron_core::job::Job;
use wasmcron_runtime::{DirWatch, DirWatchConfig, Tick};

use super::jobs::Refused;
use super::pod::Pod;
use super::stamps::Stamps;
use crate::config::{job_file, params};

/// How long plugins that were there at the start may take before jobs are read without them.
const PLUGINS_WAIT: Duration = Duration::from_secs(120);
/// How soon a file is read again that was empty.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// The folder is polled so seldom that reading all of it would take at most one part in so many of the
/// time, but no more seldom than [`POLL_MAX`]. Events tell of changes at once.
const SHARE: u32 = 20;
/// See [`SHARE`].
const POLL_MAX: Duration = Duration::from_secs(120);

/// Refused files that the fleet is told of at most.
const TOLD_MAX: usize = 100;
/// Characters of what is wrong with each of them.
const REASON_MAX_CHARS: usize = 500;

/// What became of each job file.
#[derive(Default)]
struct Files {
    /// The last good version, by file.
    good: BTreeMap<PathBuf, Arc<Job>>,
    /// The refusal that was said last, by file.
    refused: BTreeMap<PathBuf, String>,
    /// Files that were empty when they were last read: probably truncated to be written anew.
    empty: BTreeSet<PathBuf>,
    /// How they looked from outside before they were read; none: they are to be read again.
    stamps: Option<Arc<Stamps>>,
}

impl Files {
    /// Takes the last good version of a job whose own file is gone: it was renamed, or was none, as that of
    /// a plugin that no job file named before.
    fn take_of(&mut self, name: &JobName, listed: &BTreeSet<PathBuf>) -> Option<Arc<Job>> {
        let gone = |(path, job): (&PathBuf, &Arc<Job>)| {
            (job.name == *name && !listed.contains(path)).then(|| path.clone())
        };
        let path = self.good.iter().find_map(gone)?;
        self.good.remove(&path)
    }

    /// Whether a file, not necessarily the same one, holds the job.
    fn has(&self, job: &Job) -> bool {
        self.good.values().any(|kept| kept.name == job.name)
    }
}

/// Starts to follow the job directory; reads it once before it returns.
///
/// # Errors
/// When the directory does not exist.
pub async fn start(pod: &Arc<Pod>) -> Result<impl Future<Output = ()> + Send + use<>> {
    let directory = pod.settings.jobs.directory.clone();
    let config = DirWatchConfig {
        poll: pod.settings.jobs.poll.get(),
        ..DirWatchConfig::default()
    };
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("jobs.directory: cannot create {}", directory.display()))?;
    let mut watch = DirWatch::start(&directory, config).with_context(|| {
        format!(
            "jobs.directory: cannot read the job files in {}",
            directory.display()
        )
    })?;
    if tokio::time::timeout(PLUGINS_WAIT, pod.plugins.wait_loaded())
        .await
        .is_err()
    {
        tracing::warn!("some plugins are still being loaded; their jobs wait for them");
    }
    let mut files = Files::default();
    let began = Instant::now();
    read(pod, &mut files, &Tick::default()).await;
    watch.poll_at_most_every((began.elapsed() * SHARE).min(POLL_MAX));
    Ok(follow(pod.clone(), watch, files))
}

async fn follow(pod: Arc<Pod>, mut watch: DirWatch, mut files: Files) {
    let mut plugins = pod.plugins.changes();
    // Empty files that were looked at a second time: they are meant to be empty.
    let mut looked = BTreeSet::new();
    loop {
        looked.retain(|path| files.empty.contains(path));
        tokio::select! {
            biased;
            () = pod.stopped.cancelled() => return,
            tick = watch.tick() => {
                if !is_unchanged(&pod, &files, &tick).await {
                    read(&pod, &mut files, &tick).await;
                }
            }
            // A new plugin may accept parameters that the old one refused, and the other way round.
            changed = plugins.changed() => {
                if changed.is_err() {
                    return;
                }
                read(&pod, &mut files, &Tick::default()).await;
            }
            () = tokio::time::sleep(LOOK_AGAIN), if !files.empty.is_subset(&looked) => {
                looked.clone_from(&files.empty);
                read(&pod, &mut files, &Tick::default()).await;
            }
        }
    }
}

/// Whether all files look from outside as they did before they were last read.
async fn is_unchanged(pod: &Pod, files: &Files, tick: &Tick) -> bool {
    let Some(read) = files.stamps.clone().filter(|_| tick.unsettled.is_empty()) else {
        return false;
    };
    let (directory, now) = (pod.settings.jobs.directory.clone(), pod.machine.wall());
    let unchanged = tokio::task::spawn_blocking(move || {
        Stamps::of(&directory, now).is_some_and(|stamps| stamps.nothing_since(&read))
    });
    unchanged.await.unwrap_or(false)
}

async fn read(pod: &Pod, files: &mut Files, tick: &Tick) {
    let (directory, now) = (pod.settings.jobs.directory.clone(), pod.machine.wall());
    let caps = pod.settings.limits.clone();
    let listing = tokio::task::spawn_blocking(move || {
        // First how they look, then what they hold: what changes in between is read again.
        let stamps = Stamps::of(&directory, now);
        job_file::load_directory(&directory, &caps).map(|listing| (stamps, listing))
    });
    let (stamps, listing) = match listing.await {
        Ok(Ok(listing)) => listing,
        // A directory that cannot be read says nothing of the jobs: those in force stay.
        Ok(Err(error)) => {
            tracing::warn!(%error, "the jobs in force stay");
            return;
        }
        Err(_) => return,
    };
    let mut seen = Files::default();
    let mut told = Refused::new();
    let listing = with_bare_plugins(pod, listing);
    let listed: BTreeSet<PathBuf> = listing.iter().map(|file| file.path.clone()).collect();
    for file in listing {
        let accepted = match file.result {
            Ok(job) => fits_plugin(pod, &job, &file.path)
                .map(|()| job)
                .map_err(|fault| format!("{}: {fault}", file.path.display())),
            Err(error) => Err(error.to_string()),
        };
        let last = files.good.remove(&file.path);
        // What is being written, or was emptied for that, keeps what is known of it until another look.
        let unsettled = file
            .path
            .file_name()
            .is_some_and(|name| tick.unsettled.contains(name));
        let emptied = std::fs::metadata(&file.path).is_ok_and(|meta| meta.len() == 0);
        let just_emptied = emptied && !files.empty.contains(&file.path);
        if emptied {
            seen.empty.insert(file.path.clone());
        }
        if unsettled || just_emptied {
            seen.good.extend(last.map(|job| (file.path.clone(), job)));
            continue;
        }
        match accepted {
            Ok(job) => {
                let same = last.as_deref() == Some(&job);
                if !same {
                    tracing::info!(job = %job.name, file = %file.path.display(), "job.loaded");
                    pod.metrics.reloaded.with_label_values(&["job"]).inc();
                }
                seen.good.insert(
                    file.path,
                    last.filter(|_| same).unwrap_or_else(|| Arc::new(job)),
                );
            }
            Err(reason) => {
                let name = file.name.or_else(|| named_like(&file.path));
                let last = last.or_else(|| files.take_of(name.as_ref()?, &listed));
                refuse(pod, files, &file.path, &reason, last.is_some());
                if let Some(name) = name.filter(|_| told.len() < TOLD_MAX) {
                    told.insert(name, reason.chars().take(REASON_MAX_CHARS).collect());
                }
                seen.refused.insert(file.path.clone(), reason);
                seen.good.extend(last.map(|job| (file.path, job)));
            }
        }
    }
    // Files that kept what was known of them are read again whatever they look like.
    seen.stamps = stamps
        .filter(|_| tick.unsettled.is_empty() && seen.empty.is_empty())
        .map(Arc::new);
    take_over(pod, files, seen);
    pod.jobs.refuse(told);
}

/// The job that a file is probably of, where nothing in it says so.
fn named_like(file: &Path) -> Option<JobName> {
    JobName::new(file.file_stem()?.to_str()?).ok()
}

/// Puts what was read in the place of what was known.
fn take_over(pod: &Pod, files: &mut Files, seen: Files) {
    for job in files.good.values() {
        if !seen.has(job) {
            tracing::info!(job = %job.name, "job.removed");
        }
    }
    *files = seen;
    let jobs = files.good.values().cloned();
    if pod.jobs.replace(jobs, pod.clock.now()) {
        tracing::debug!(jobs = files.good.len(), "the job definitions changed");
    }
}

fn refuse(pod: &Pod, files: &Files, path: &PathBuf, reason: &str, kept: bool) {
    if files.refused.get(path).is_some_and(|said| said == reason) {
        return;
    }
    pod.metrics.reload_failed.with_label_values(&["job"]).inc();
    let then = if kept {
        "the last good version goes on"
    } else {
        "the job is not served"
    };
    tracing::warn!(reason, then, "job.refused");
}

/// Adds a job for each plugin that serves and that no job file names, where the settings ask for that.
fn with_bare_plugins(pod: &Pod, mut listing: Vec<job_file::JobFile>) -> Vec<job_file::JobFile> {
    if pod.settings.jobs.bare_plugins {
        let folder = &pod.settings.plugins.directory;
        let plugins = pod.plugins.serving().into_keys().map(|name| {
            let file = plugin_file(folder, name.as_str());
            (name.to_string(), file)
        });
        job_file::add_bare_plugins(&mut listing, plugins, &pod.settings.limits);
    }
    listing
}

/// The file of a plugin; `_` in its name counts as `-`.
fn plugin_file(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(format!("{name}.wasm"));
    let other = folder.join(format!("{}.wasm", name.replace('-', "_")));
    if other.exists() { other } else { file }
}

/// Checks a job's parameters against its plugin's schema, as far as both are known here.
fn fits_plugin(pod: &Pod, job: &Job, file: &Path) -> Result<(), String> {
    // Nobody wrote parameters for it; they come with each request.
    if job_file::is_bare_plugin(file) {
        return Ok(());
    }
    let Some(plugin) = pod.plugins.active(job.definition.plugin.as_str()) else {
        return Ok(());
    };
    // A variable may be set on another pod only, so an unresolved reference is no fault of the file.
    let Ok(text) = params::resolve(&job.definition.params, |name| std::env::var(name).ok()) else {
        return Ok(());
    };
    let Ok(value) = serde_json::from_str(&text) else {
        return Ok(());
    };
    plugin.check_parameters(&value).map_err(|faults| {
        format!(
            "[params] do not fit the plugin {}: {}",
            job.definition.plugin,
            faults.join("; ")
        )
    })
}
