//! What the fleet has to do, and the source and target that its jobs talk to.

use std::time::Duration;

use anyhow::Result;

use crate::fleet::{Site, Timing};
use crate::servers::source::{Config, Source};
use crate::servers::target::Target;
use crate::servers::{self, Running};

/// Guests that the jobs run.
const GUESTS: [&str; 3] = ["hello", "stepper", "merchant-full-sync"];
/// Rows of the source; a sync reads them by pages of this many.
const ROWS: usize = 300;
const PAGE: usize = 20;

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// Its file, but for the name.
    pub text: String,
    /// It syncs the source to this alias.
    pub alias: Option<String>,
    /// Its runs have so many numbered effects.
    pub steps: Option<u32>,
}

/// Jobs, source and target.
pub struct Workload {
    /// The jobs.
    pub jobs: Vec<JobPlan>,
    /// What syncs read.
    pub source: Source,
    /// Where effects go.
    pub target: Target,
    /// Rows of the source and their checksum.
    pub rows: (usize, String),
    _servers: [Running; 2],
}

impl Workload {
    /// Syncs, jobs with numbered effects, and many small ones, under every policy.
    ///
    /// # Errors
    /// When a server cannot be started.
    pub async fn mixed(seed: u64, timing: Timing) -> Result<Workload> {
        // A sync shall last about as long as a lock, so that faults meet some in the middle.
        let latency = timing.lock_ttl() / 20;
        let mut workload = Workload::empty(seed, latency).await?;
        let (source, target) = workload.urls();
        workload.jobs = syncs(&source, &target);
        workload.jobs.extend(steppers(&target));
        workload.jobs.extend(small_ones());
        Ok(workload)
    }

    /// So many jobs that do nothing, one firing of each every so often.
    ///
    /// # Errors
    /// When a server cannot be started.
    pub async fn uniform(jobs: usize, period: Duration) -> Result<Workload> {
        let mut workload = Workload::empty(1, Duration::ZERO).await?;
        let every = period.as_millis();
        workload.jobs = (0..jobs)
            .map(|number| {
                // A firing that was late is made up for, each one: none may be missing.
                let schedule = format!(
                    "every = \"{every}ms\"\noverlap = \"queue\"\nmisfire = {{ policy = \"all\", max = 100 }}"
                );
                small(&format!("settle-{number:03}"), &schedule)
            })
            .collect();
        Ok(workload)
    }

    async fn empty(seed: u64, latency: Duration) -> Result<Workload> {
        let rows = ROWS;
        let source = Source::new(Config {
            seed,
            rows,
            latency,
        });
        let target = Target::default();
        let checksum = servers::checksum::of_all(&source.rows());
        let any = ([127, 0, 0, 1], 0).into();
        let servers = [
            servers::start(any, source.router()).await?,
            servers::start(any, target.router()).await?,
        ];
        Ok(Workload {
            jobs: Vec::new(),
            source,
            target,
            rows: (rows, servers::checksum::to_text(checksum)),
            _servers: servers,
        })
    }

    fn urls(&self) -> (String, String) {
        let [source, target] = &self._servers;
        (source.url(), target.url())
    }

    /// Installs the plugins and writes the job files.
    ///
    /// # Errors
    /// When a guest is not built, or a file cannot be written.
    pub fn deploy(&self, site: &Site) -> Result<()> {
        for guest in GUESTS {
            site.install(guest)?;
        }
        for job in &self.jobs {
            site.write_job(&job.name, &job.text)?;
        }
        Ok(())
    }

    /// Plugins that may be replaced.
    #[must_use]
    pub fn guests(&self) -> &'static [&'static str] {
        &GUESTS
    }
}

fn syncs(source: &str, target: &str) -> Vec<JobPlan> {
    let schedules = [
        ("*/7 * * * * *", "overlap = \"queue\""),
        ("*/10 * * * * *", "overlap = \"skip\"\nreload = \"handoff\""),
        ("3/12 * * * * *", "overlap = \"replace\""),
    ];
    let jobs = schedules.into_iter().enumerate();
    jobs.map(|(number, (cron, more))| {
        let alias = format!("merchants-{number}");
        let text = format!(
            "plugin = \"merchant-full-sync\"\ncron = \"{cron}\"\nresumable = true\ntimeout = \"2m\"\n\
             retry = {{ max_attempts = 20, backoff = \"500ms\", max_backoff = \"5s\" }}\n{more}\n\
             [params]\nsource = \"{source}/rows\"\ntarget = \"{target}\"\nalias = \"{alias}\"\n\
             page_size = {PAGE}\n[allow]\nhttp = [\"{source}\", \"{target}\"]\n"
        );
        JobPlan {
            name: format!("sync-{number}"),
            text,
            alias: Some(alias),
            steps: None,
        }
    })
    .collect()
}

fn steppers(target: &str) -> Vec<JobPlan> {
    let kinds = [
        (
            "every = \"5s\"\nresumable = true\noverlap = \"queue\"",
            20,
            100,
        ),
        (
            "every = \"9s\"\nresumable = true\nreload = \"handoff\"",
            60,
            50,
        ),
        ("every = \"4s\"\nauto_rerun = true", 5, 100),
        (
            "every = \"6s\"\nmisfire = \"all\"\noverlap = \"queue\"",
            3,
            200,
        ),
        (
            "every = \"30s\"\nresumable = true\nexclusive = true",
            5,
            100,
        ),
    ];
    let jobs = kinds.into_iter().enumerate();
    jobs.map(|(number, (more, steps, step_ms))| {
        let text = format!(
            "plugin = \"stepper\"\ntimeout = \"1m\"\n\
             retry = {{ max_attempts = 20, backoff = \"500ms\", max_backoff = \"5s\" }}\n{more}\n\
             [params]\ntarget = \"{target}\"\nsteps = {steps}\nstep_ms = {step_ms}\nonce = true\n\
             [allow]\nhttp = [\"{target}\"]\n"
        );
        JobPlan {
            name: format!("steps-{number}"),
            text,
            alias: None,
            steps: Some(steps),
        }
    })
    .collect()
}

fn small_ones() -> Vec<JobPlan> {
    let schedules = [
        "every = \"1s\"",
        "every = \"2s\"\nmisfire = \"all\"\noverlap = \"queue\"",
        "cron = \"*/3 * * * * *\"\nmisfire = \"skip\"",
        "every = \"2s\"\njitter = \"900ms\"",
        "cron = \"*/2 * * * * *\"\nmisfire = { policy = \"once\", grace = \"2s\" }",
        "every = \"1500ms\"\noverlap = \"replace\"",
        "every = \"3s\"\nresumable = true",
        "every = \"5s\"\nmisfire = { policy = \"all\", max = 3 }\nauto_rerun = true",
    ];
    let jobs = schedules.into_iter().enumerate();
    jobs.map(|(number, schedule)| small(&format!("tick-{number}"), schedule))
        .collect()
}

/// A job that does nothing.
fn small(name: &str, schedule: &str) -> JobPlan {
    JobPlan {
        name: name.to_owned(),
        text: format!("plugin = \"hello\"\ntimeout = \"30s\"\n{schedule}\n"),
        alias: None,
        steps: None,
    }
}
