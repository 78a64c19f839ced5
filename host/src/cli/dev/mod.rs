//! `dev`: one pod on the plugins and job files of a folder, told on the terminal.
//!
//! The pod is the one of `serve`. What it does is followed through the store, as any other process
//! could.

mod event;
mod folder;
mod follow;
mod keys;
mod screen;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use wasmcron_core::ids::{JobName, RunId};
use wasmcron_core::task::{Reason, Task};
use wasmcron_store::schedule::Submission;

use super::context::{Context, Globals, runtime};
use super::out::{Answer, Failure};
use super::trigger;
use crate::{services, store, telemetry};
use event::{Event, JobEntry};
use folder::Folder;
use follow::Follower;
use keys::{Asked, Keyboard};
use screen::Screen;

pub use folder::store_of;

/// Between two looks at what happened.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Between two looks at the jobs.
const JOBS_EVERY: Duration = Duration::from_secs(1);

/// A pod for who writes a plugin.
///
/// Plugins are those in DIR/plugins, else those that `cargo plugin` builds where DIR is a Rust project,
/// else those in DIR. Job files are those in DIR/jobs, else those in DIR. A plugin that no job file names
/// is a job of its own name, by hand only. Both are read again when they change. DIR/wasmcron.toml is
/// read if there is one; store, address, port and log are dev's own all the same, below DIR/.wasmcron.
#[derive(Debug, Args)]
pub struct Dev {
    /// The folder
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

/// Serves until Ctrl-C.
pub fn run(globals: &Globals, verb: &Dev) -> Answer {
    if globals.dev.is_some() {
        return Err(Failure::bad_input(
            "--dev: this option is for commands that talk to a pod; `wasmcron dev DIR` starts one",
        ));
    }
    let folder = Folder::take(&verb.dir)?;
    let settings = folder.settings(globals.load_from(&folder.path)?);
    let screen = Screen::new(globals.json);
    let log = screen.clone();
    let colours = screen.colours() && std::io::stderr().is_terminal();
    telemetry::start_on(&settings.log, colours, move || log.log_writer())
        .map_err(|error| Failure::failed(format!("{error:#}")))?;
    for remark in folder.passed_over(&settings) {
        screen.say(&format!("warning: {remark}"));
    }
    let runtime = runtime()?;
    let opened = runtime.block_on(async {
        let store = store::connect(&settings).await?;
        let follower = Follower::start(&*store).await?;
        Ok((store, follower))
    });
    let (store, follower) = opened.map_err(|error: wasmcron_store::StoreError| {
        Failure::failed(format!("store {}: {error}", settings.store))
    })?;
    let keyboard = if globals.json { None } else { Keyboard::take() };
    let (served, started) = oneshot::channel();
    let over = CancellationToken::new();
    let teller = Teller {
        ctx: Context {
            settings: settings.clone(),
            store,
            out: globals.out(),
        },
        folder: folder.path.display().to_string(),
        screen: screen.clone(),
        follower,
        jobs: Vec::new(),
        keys: keyboard.as_ref().map(Keyboard::listen),
        over: over.clone(),
    };
    let thread = std::thread::Builder::new()
        .name("dev".into())
        .spawn(move || runtime.block_on(tell(teller, started)))
        .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
    let result = services::serve(settings, |http| {
        // The teller ends after the pod only.
        let _ = served.send(http);
    });
    over.cancel();
    // A panic there was printed; the pod ended well all the same.
    let _ = thread.join();
    screen.end();
    drop(keyboard);
    result.map_err(|error| Failure::failed(format!("{error:#}")))
}

/// What tells what happens.
struct Teller {
    ctx: Context,
    folder: String,
    screen: Screen,
    follower: Follower,
    jobs: Vec<JobEntry>,
    keys: Option<mpsc::Receiver<u8>>,
    over: CancellationToken,
}

/// Tells everything until the pod has ended.
async fn tell(mut told: Teller, started: oneshot::Receiver<SocketAddr>) {
    let http = tokio::select! {
        http = started => http,
        () = told.over.cancelled() => return,
    };
    if let Ok(http) = http {
        told.ready(http);
    }
    let mut jobs_at = Instant::now();
    loop {
        let key = tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => None,
            key = next_key(&mut told.keys) => Some(key),
            () = told.over.cancelled() => break,
        };
        match key {
            Some(Some(key)) => told.act(key).await,
            Some(None) => told.keys = None,
            None => {}
        }
        told.look().await;
        if jobs_at <= Instant::now() {
            told.look_at_jobs().await;
            jobs_at = Instant::now() + JOBS_EVERY;
        }
    }
    told.look().await;
}

/// The next key; never where there is no keyboard.
async fn next_key(keys: &mut Option<mpsc::Receiver<u8>>) -> Option<u8> {
    match keys {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}

impl Teller {
    fn ready(&self, http: SocketAddr) {
        let settings = &self.ctx.settings;
        let place = if settings.store == store_of(Path::new(&self.folder)) {
            format!("--dev {}", self.folder)
        } else {
            format!("--store {}", settings.store)
        };
        self.screen.show(&Event::Ready {
            folder: self.folder.clone(),
            plugins: settings.plugins.directory.display().to_string(),
            jobs: settings.jobs.directory.display().to_string(),
            store: settings.store.to_string(),
            promise: store::promise(&settings.store),
            http: http.to_string(),
            trigger: format!("wasmcron job trigger NAME {place}"),
        });
    }

    async fn look(&mut self) {
        // The pod itself says when the store does not answer.
        if let Ok(events) = self.follower.look(&*self.ctx.store).await {
            for event in &events {
                self.screen.show(event);
            }
        }
    }

    async fn look_at_jobs(&mut self) {
        let Ok(Some(event)) = self.follower.jobs(&*self.ctx.store).await else {
            return;
        };
        if let Event::Jobs { jobs } = &event {
            self.jobs.clone_from(jobs);
        }
        if self.keys.is_some() {
            self.list();
        } else {
            self.screen.show(&event);
            if self.jobs.is_empty() {
                self.say_no_job();
            }
        }
    }

    /// What to do where there is no job.
    fn say_no_job(&self) {
        let plugins = &self.ctx.settings.plugins.directory;
        self.screen
            .say(&folder::no_job(Path::new(&self.folder), plugins));
    }

    /// The jobs with their keys.
    fn list(&self) {
        if self.jobs.is_empty() {
            self.say_no_job();
        }
        for (place, job) in self.jobs.iter().enumerate() {
            let key = keys::key_of(place).unwrap_or(' ');
            self.screen
                .say(&format!("  {key}  {:<24} {}", job.name, job.schedule));
        }
        self.screen
            .say("press a job's key to run it, l for this list, q or Ctrl-C to end");
    }

    async fn act(&self, key: u8) {
        match keys::asked(key) {
            Asked::Run(place) => {
                if let Some(job) = self.jobs.get(place)
                    && let Err(failure) = self.trigger(&job.name).await
                {
                    self.screen.say(&format!("{}: {failure}", job.name));
                }
            }
            Asked::List => self.list(),
            Asked::Quit => keys::interrupt(),
            Asked::Nothing => {}
        }
    }

    async fn trigger(&self, job: &str) -> Result<(), Failure> {
        let name: JobName = job.parse().map_err(Failure::bad_input)?;
        let view = self.ctx.job(&name).await?;
        let run = RunId::manual(&name, ulid::Ulid::generate());
        let now = self.ctx.store.now().await?;
        let submission = Submission {
            task: Task::first(run, now, Reason::Manual, view.stored.definition.params),
            idempotency: None,
        };
        trigger::submit(&self.ctx, &submission).await.map(drop)
    }
}
