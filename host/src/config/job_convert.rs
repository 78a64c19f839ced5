//! From a job file as it is written to the core's [`Job`], with every rule that no type expresses.

use std::fmt::Display;
use std::time::Duration;

use toml::de::{DeTable, DeValue};
use wasmcron_core::cron::{Cron, Zone};
use wasmcron_core::ids::{Digest, JobName, PluginName};
use wasmcron_core::job::{
    Allow, CHECKPOINT_CAP, Definition, Job, Limits, Misfire, MisfirePolicy, Retry,
};
use wasmcron_core::schedule::{MIN_PERIOD, Schedule, Trigger};
use wasmcron_core::time::Timestamp;

use super::document::Source;
use super::fault::{ConfigError, Fault};
use super::job_file::{JobToml, MisfireTable, MisfireToml, PolicyToml, SKIP_GRACE};
use super::params;
use super::settings::LimitSettings;
use super::units::{Size, Span};

/// The longest jitter.
const JITTER_MAX: Duration = Duration::from_secs(86_400);
/// The shortest time-out; less would end an attempt before its sandbox stands.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Attempts and caught-up firings that a file may ask for.
const COUNT_MAX: u32 = 1_000;
/// Firings that `misfire = "all"` catches up unless the file says otherwise.
const CATCH_UP_DEFAULT: u32 = 100;
/// The smallest memory, one page of WebAssembly.
const MEMORY_MIN: Size = Size::mib(1);
/// Origins, variables, secrets and labels in a list at most.
const LIST_MAX: usize = 256;

/// Turns what is written into a job, with remarks on what is accepted but hardly meant.
///
/// # Errors
/// Everything that is wrong, each at its line.
pub fn convert(
    source: &Source,
    table: &DeTable<'_>,
    toml: JobToml,
    caps: &LimitSettings,
) -> Result<(Job, Vec<String>), ConfigError> {
    let mut check = Check {
        source,
        table,
        faults: Vec::new(),
        warnings: Vec::new(),
    };
    let name = check.accept("name", JobName::new(&toml.name));
    let plugin_text = toml.plugin.as_deref().unwrap_or(&toml.name);
    let plugin = match &toml.plugin {
        // A bad name of the job is said once, not again for the plugin that it would name.
        None => PluginName::new(plugin_text).ok(),
        Some(_) => check.accept("plugin", PluginName::new(plugin_text)),
    };
    let schedule = check.schedule(&toml);
    let timeout = check.timeout(toml.timeout, caps);
    let run_timeout = check.run_timeout(toml.run_timeout);
    let misfire = check.misfire(toml.misfire.as_ref());
    let retry = check.retry(&toml);
    let limits = check.limits(&toml, caps);
    let allow = check.allow(toml.allow.http, toml.allow.env, toml.allow.secrets);
    let digest = toml
        .digest
        .as_deref()
        .and_then(|text| check.accept("digest", Digest::new(text)));
    check.labels(&toml.pods);
    let params = check.params(toml.params.is_empty());
    let Check {
        faults, warnings, ..
    } = check;
    let (Some(name), Some(plugin), Some(schedule), true) =
        (name, plugin, schedule, faults.is_empty())
    else {
        return Err(ConfigError { faults });
    };
    let definition = Definition {
        plugin,
        enabled: toml.enabled,
        schedule,
        resumable: toml.resumable,
        auto_rerun: toml.auto_rerun,
        exclusive: toml.exclusive,
        timeout,
        run_timeout,
        overlap: toml.overlap,
        misfire,
        retry,
        pods: toml.pods,
        digest,
        params,
    };
    Ok((
        Job {
            name,
            definition,
            limits,
            allow,
            reload: toml.reload,
        },
        warnings,
    ))
}

/// Collects faults while the parts are checked, so that one reading shows all of them.
struct Check<'a> {
    source: &'a Source,
    table: &'a DeTable<'a>,
    faults: Vec<Fault>,
    warnings: Vec<String>,
}

impl Check<'_> {
    fn refuse(&mut self, key: &str, message: impl Display) {
        self.faults
            .push(self.source.fault_of(self.table, key, message.to_string()));
    }

    fn accept<T, E: Display>(&mut self, key: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.refuse(key, error)).ok()
    }

    fn schedule(&mut self, toml: &JobToml) -> Option<Schedule> {
        let trigger = self.trigger(toml);
        let starts = self.moment("starts", toml.starts.as_ref().map(|m| m.0.as_str()));
        let ends = self.moment("ends", toml.ends.as_ref().map(|m| m.0.as_str()));
        if let (Some(starts), Some(ends)) = (starts, ends)
            && ends < starts
        {
            self.refuse("ends", format!("{ends} lies before `starts` ({starts})"));
        }
        let jitter = toml.jitter.map_or(Duration::ZERO, Span::get);
        if jitter > JITTER_MAX {
            self.refuse(
                "jitter",
                format!("found {}, accepted is at most 1d", Span::<0>::from(jitter)),
            );
        }
        if let Some(Trigger::Every { period }) = &trigger
            && jitter > *period
        {
            self.refuse(
                "jitter",
                format!(
                    "found {}, accepted is at most the period ({})",
                    Span::<0>::from(jitter),
                    Span::<0>::from(*period)
                ),
            );
        }
        if matches!(trigger, Some(Trigger::Manual)) {
            let written = [
                ("starts", starts.is_some()),
                ("ends", ends.is_some()),
                ("jitter", toml.jitter.is_some()),
                ("misfire", toml.misfire.is_some()),
            ];
            for (key, _) in written.iter().filter(|(_, written)| *written) {
                self.refuse(
                    key,
                    "has no effect: the job has neither `cron` nor `every` and runs only by hand",
                );
            }
        }
        Some(Schedule {
            trigger: trigger?,
            starts,
            ends,
            jitter,
        })
    }

    fn trigger(&mut self, toml: &JobToml) -> Option<Trigger> {
        if toml.timezone.is_some() && toml.cron.is_none() {
            self.refuse(
                "timezone",
                "has no effect without `cron`; a period is aligned to 1970-01-01T00:00:00Z",
            );
        }
        match (&toml.cron, toml.every) {
            (Some(_), Some(_)) => {
                self.refuse("every", "a job has `cron` or `every`, not both");
                None
            }
            (Some(cron), None) => {
                let zone = match &toml.timezone {
                    Some(name) => self.accept("timezone", Zone::parse(name)),
                    None => Some(Zone::UTC),
                };
                let expression = self.accept(
                    "cron",
                    Cron::parse(cron).map_err(|error| format!("job {:?}: {error}", toml.name)),
                )?;
                let remarks = expression
                    .warnings()
                    .iter()
                    .map(|text| format!("cron: {text}"));
                self.warnings.extend(remarks);
                Some(Trigger::Cron {
                    expression,
                    timezone: zone?,
                })
            }
            (None, Some(every)) if every.get() < MIN_PERIOD => {
                self.refuse(
                    "every",
                    format!(
                        "found {every}, accepted is at least {}",
                        Span::<0>::from(MIN_PERIOD)
                    ),
                );
                None
            }
            (None, Some(every)) => Some(Trigger::Every {
                period: every.get(),
            }),
            (None, None) => Some(Trigger::Manual),
        }
    }

    fn moment(&mut self, key: &str, text: Option<&str>) -> Option<Timestamp> {
        self.accept(key, text?.parse::<Timestamp>())
    }

    fn timeout(&mut self, asked: Option<Span<3_600_000>>, caps: &LimitSettings) -> Duration {
        let cap = caps.timeout.get();
        let Some(asked) = asked else {
            return Span::<3_600_000>::default().get().min(cap);
        };
        if asked.get() < TIMEOUT_MIN {
            self.refuse(
                "timeout",
                format!(
                    "found {asked}, accepted is at least {}",
                    Span::<0>::from(TIMEOUT_MIN)
                ),
            );
        }
        if asked.get() > cap {
            self.refuse(
                "timeout",
                format!(
                    "found {asked}, this pod allows at most {} (its limits.timeout)",
                    caps.timeout
                ),
            );
        }
        asked.get()
    }

    fn run_timeout(&mut self, asked: Option<Span<0>>) -> Option<Duration> {
        let asked = asked?;
        if asked.get() < TIMEOUT_MIN {
            let least = Span::<0>::from(TIMEOUT_MIN);
            let message = format!("found {asked}, accepted is at least {least}");
            self.refuse("run_timeout", message);
        }
        Some(asked.get())
    }

    fn misfire(&mut self, toml: Option<&MisfireToml>) -> Misfire {
        let MisfireTable { policy, grace, max } = match toml {
            None => return Misfire::default(),
            Some(MisfireToml::Policy(policy)) => MisfireTable {
                policy: *policy,
                grace: None,
                max: None,
            },
            Some(MisfireToml::Table(table)) => table.clone(),
        };
        if max.is_some() && policy != PolicyToml::All {
            self.refuse("misfire.max", "has no effect unless the policy is \"all\"");
        }
        if let Some(found) = max.filter(|max| !(1..=COUNT_MAX).contains(max)) {
            self.refuse(
                "misfire.max",
                format!("found {found}, accepted are 1 to {COUNT_MAX}"),
            );
        }
        if grace.is_some_and(|grace| grace.get().is_zero()) {
            self.refuse(
                "misfire.grace",
                "found 0s, accepted is more: every firing is a little late",
            );
        }
        let (policy, default) = match policy {
            PolicyToml::Skip => (MisfirePolicy::Skip, SKIP_GRACE),
            PolicyToml::Once => (MisfirePolicy::Once, Misfire::default().grace),
            PolicyToml::All => (
                MisfirePolicy::All {
                    max: max.unwrap_or(CATCH_UP_DEFAULT),
                },
                Misfire::default().grace,
            ),
        };
        Misfire {
            policy,
            grace: grace.map_or(default, Span::get),
        }
    }

    fn retry(&mut self, toml: &JobToml) -> Retry {
        let default = Retry::default();
        let written = &toml.retry;
        let max_attempts = written.max_attempts.unwrap_or(default.max_attempts);
        if !(1..=COUNT_MAX).contains(&max_attempts) {
            self.refuse(
                "retry.max_attempts",
                format!("found {max_attempts}, accepted are 1 to {COUNT_MAX}"),
            );
        }
        let backoff = written.backoff.map_or(default.backoff, Span::get);
        let max_backoff = match written.max_backoff {
            Some(max) => max.get(),
            // Whoever waits longer than the default maximum from the start means it.
            None => default.max_backoff.max(backoff),
        };
        if max_backoff < backoff {
            let (max, first) = (Span::<0>::from(max_backoff), Span::<0>::from(backoff));
            self.refuse(
                "retry.max_backoff",
                format!("found {max}, accepted is at least `backoff` ({first})"),
            );
        }
        Retry {
            max_attempts,
            backoff,
            max_backoff,
        }
    }

    fn limits(&mut self, toml: &JobToml, caps: &LimitSettings) -> Limits {
        let default = Limits::default();
        let asked = &toml.limits;
        let memory = self.size("memory", asked.memory, default.memory, caps.memory);
        if asked.memory.is_some_and(|memory| memory < MEMORY_MIN) {
            self.refuse(
                "limits.memory",
                format!(
                    "found {}, accepted is at least {MEMORY_MIN}",
                    Size::from(memory)
                ),
            );
        }
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let checkpoint_cap = caps.checkpoint.min(Size::from(u64::from(CHECKPOINT_CAP)));
        let cap = caps.log_lines_per_second;
        let lines = asked.log_lines_per_second;
        if let Some(found) = lines.filter(|lines| !(1..=cap).contains(lines)) {
            self.refuse("limits.log_lines_per_second", format!("found {found}, accepted are 1 to {cap} (this pod's limits.log_lines_per_second)"));
        }
        Limits {
            memory,
            log_bytes: self.size("log", asked.log, default.log_bytes, caps.log),
            log_lines_per_second: lines.unwrap_or(default.log_lines_per_second.min(cap)),
            checkpoint: narrow(self.size(
                "checkpoint",
                asked.checkpoint,
                default.checkpoint.into(),
                checkpoint_cap,
            )),
            state: narrow(self.size("state", asked.state, default.state.into(), caps.state)),
            http_body: self.size(
                "http_body",
                asked.http_body,
                default.http_body,
                caps.http_body,
            ),
        }
    }

    /// What was asked for, or the default as far as the pod allows it.
    fn size(&mut self, key: &str, asked: Option<Size>, default: u64, cap: Size) -> u64 {
        let Some(asked) = asked else {
            return default.min(cap.bytes());
        };
        if asked.bytes() == 0 {
            self.refuse(
                &format!("limits.{key}"),
                "found 0B, accepted is more than nothing",
            );
        }
        if asked > cap {
            self.refuse(
                &format!("limits.{key}"),
                format!("found {asked}, this pod allows at most {cap} (its limits.{key})"),
            );
        }
        asked.bytes()
    }

    fn allow(&mut self, http: Vec<String>, env: Vec<String>, secrets: Vec<String>) -> Allow {
        for (key, list) in [
            ("allow.http", &http),
            ("allow.env", &env),
            ("allow.secrets", &secrets),
        ] {
            if list.len() > LIST_MAX {
                self.refuse(
                    key,
                    format!("{} entries, accepted are at most {LIST_MAX}", list.len()),
                );
            }
        }
        for (n, origin) in http.iter().enumerate() {
            self.accept(
                &format!("allow.http.{n}"),
                origin.parse::<wasmcron_runtime::HttpGrant>(),
            );
        }
        for (n, name) in env.iter().enumerate() {
            self.accept(&format!("allow.env.{n}"), params::check_env_name(name));
        }
        for (n, name) in secrets.iter().enumerate() {
            self.accept(&format!("allow.secrets.{n}"), check_secret_name(name));
        }
        Allow { http, env, secrets }
    }

    fn labels(&mut self, pods: &std::collections::BTreeMap<String, String>) {
        for (label, value) in pods {
            self.accept(&format!("pods.{label}"), check_label(label, value));
        }
        if pods.len() > LIST_MAX {
            self.refuse(
                "pods",
                format!("{} labels, accepted are at most {LIST_MAX}", pods.len()),
            );
        }
    }

    fn params(&mut self, none: bool) -> String {
        let written = match self.table.get("params").map(toml::Spanned::get_ref) {
            Some(DeValue::Table(table)) if !none => table,
            _ => return "{}".into(),
        };
        params::to_json(written).unwrap_or_else(|faults| {
            for (key, reason) in faults {
                self.refuse(&key, reason);
            }
            String::new()
        })
    }
}

/// Whether a text can name a secret.
///
/// # Errors
/// The reason, with what is accepted.
pub fn check_secret_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if !name.is_empty() && name.len() <= 128 && name.chars().all(plain) {
        Ok(())
    } else {
        let found: String = name.chars().take(40).collect();
        Err(format!(
            "{found:?} is not a secret's name; accepted are 1 to 128 of a-z A-Z 0-9 _ - . /"
        ))
    }
}

/// Whether a label with its value can be matched against a pod's.
///
/// # Errors
/// The reason, with what is accepted.
pub fn check_label(label: &str, value: &str) -> Result<(), String> {
    let plain = |text: &str| {
        !text.is_empty() && text.len() <= 253 && text.chars().all(|c| c.is_ascii_graphic())
    };
    if plain(label) && plain(value) {
        Ok(())
    } else {
        Err(format!(
            "{label:?} = {value:?} is not a label; accepted are names and values of 1 to 253 printable ASCII characters without spaces"
        ))
    }
}
