//! Rules that span several settings, or that no type expresses.

use std::time::Duration;

use wasmcron_core::ids::PodAddress;
use wasmcron_core::job::CHECKPOINT_CAP;

use super::job_convert::{check_label, check_secret_name};
use super::params::check_env_name;
use super::settings::{SecretSource, Settings};
use super::units::{Size, Span};

/// The longest lease or window: a dead pod is not missed for longer.
const LEASE_MAX: Duration = Duration::from_secs(3_600);
/// The shortest pause between two looks of any loop.
const LOOP_MIN: Duration = Duration::from_millis(50);

/// Everything that is wrong with settings whose values all fit their types, by key.
pub fn check(settings: &Settings) -> Vec<(String, String)> {
    let mut faults = Faults(Vec::new());
    faults.leases(settings);
    faults.durations(settings);
    faults.limits(settings);
    faults.names(settings);
    faults.0
}

struct Faults(Vec<(String, String)>);

fn text(duration: Duration) -> Span<0> {
    duration.into()
}

impl Faults {
    fn refuse(&mut self, key: &str, message: String) {
        self.0.push((key.to_owned(), message));
    }

    fn at_least(&mut self, key: &str, found: Duration, least: Duration, why: &str) {
        if found < least {
            self.refuse(
                key,
                format!(
                    "found {}, accepted is at least {}{why}",
                    text(found),
                    text(least)
                ),
            );
        }
    }

    fn at_most(&mut self, key: &str, found: Duration, most: Duration) {
        if found > most {
            self.refuse(
                key,
                format!("found {}, accepted is at most {}", text(found), text(most)),
            );
        }
    }

    fn within(&mut self, key: &str, found: u64, least: u64, most: u64) {
        if !(least..=most).contains(&found) {
            self.refuse(
                key,
                format!("found {found}, accepted are {least} to {most}"),
            );
        }
    }

    fn size(&mut self, key: &str, found: Size, least: Size, most: Size) {
        if found < least || found > most {
            self.refuse(
                key,
                format!("found {found}, accepted are {least} to {most}"),
            );
        }
    }

    /// A lease must survive one failed renewal, the wait for the answer of the next, and the margin
    /// by which its holder stops early; else a healthy pod loses it.
    fn leases(&mut self, settings: &Settings) {
        let (lock, leader, subscribers) = (&settings.lock, &settings.leader, &settings.subscribers);
        let answer = settings.store_timeout;
        let need = lock.renewal.get() * 2 + answer.get() + lock.margin.get();
        let why = format!(
            ": twice lock.renewal ({}), store_timeout ({answer}) and lock.margin ({})",
            lock.renewal, lock.margin
        );
        self.at_least("lock.ttl", lock.ttl.get(), need, &why);
        let need = leader.renewal.get() * 2 + answer.get() + leader.margin();
        let why = format!(
            ": twice leader.renewal ({}), store_timeout ({answer}) and a margin of {}",
            leader.renewal,
            text(leader.margin())
        );
        self.at_least("leader.ttl", leader.ttl.get(), need, &why);
        let why = format!(
            ": three times subscribers.heartbeat ({})",
            subscribers.heartbeat
        );
        self.at_least(
            "subscribers.window",
            subscribers.window.get(),
            subscribers.heartbeat.get() * 3,
            &why,
        );
        for (key, lease) in [
            ("lock.ttl", lock.ttl.get()),
            ("leader.ttl", leader.ttl.get()),
            ("subscribers.window", subscribers.window.get()),
        ] {
            self.at_most(key, lease, LEASE_MAX);
        }
    }

    fn durations(&mut self, settings: &Settings) {
        let loops = [
            ("plugins.poll", settings.plugins.poll.get()),
            ("jobs.poll", settings.jobs.poll.get()),
            ("store_timeout", settings.store_timeout.get()),
            ("leader.renewal", settings.leader.renewal.get()),
            ("lock.renewal", settings.lock.renewal.get()),
            (
                "subscribers.heartbeat",
                settings.subscribers.heartbeat.get(),
            ),
            ("recovery.scan", settings.recovery.scan.get()),
            (
                "runtime.checkpoint_interval",
                settings.runtime.checkpoint_interval.get(),
            ),
        ];
        for (key, found) in loops {
            self.at_least(key, found, LOOP_MIN, "");
        }
        let spans = [
            ("pod.drain_timeout", settings.pod.drain_timeout.get()),
            ("pod.exclusive_wait", settings.pod.exclusive_wait.get()),
            ("lock.margin", settings.lock.margin.get()),
            (
                "recovery.scheduled_too_long",
                settings.recovery.scheduled_too_long.get(),
            ),
            (
                "recovery.session_grace",
                settings.recovery.session_grace.get(),
            ),
            ("recovery.window", settings.recovery.window.get()),
            (
                "recovery.auto_rerun_max_average",
                settings.recovery.auto_rerun_max_average.get(),
            ),
            ("limits.timeout", settings.limits.timeout.get()),
            ("retention.age", settings.retention.age.get()),
            ("runtime.stop_notice", settings.runtime.stop_notice.get()),
            ("runtime.cancel_grace", settings.runtime.cancel_grace.get()),
        ];
        for (key, found) in spans {
            self.at_least(key, found, Duration::from_millis(1), "");
        }
    }

    fn limits(&mut self, settings: &Settings) {
        let limits = &settings.limits;
        let (kib, mib) = (Size::from(1 << 10), Size::mib(1));
        self.size("limits.memory", limits.memory, mib, Size::mib(64 << 10));
        self.size("limits.log", limits.log, kib, Size::mib(1 << 10));
        self.size(
            "limits.checkpoint",
            limits.checkpoint,
            kib,
            Size::from(u64::from(CHECKPOINT_CAP)),
        );
        self.size("limits.state", limits.state, kib, Size::mib(256));
        self.size(
            "limits.http_body",
            limits.http_body,
            kib,
            Size::mib(4 << 10),
        );
        self.within(
            "limits.log_lines_per_second",
            limits.log_lines_per_second.into(),
            1,
            1_000_000,
        );
        self.within(
            "recovery.max_recoveries",
            settings.recovery.max_recoveries.into(),
            1,
            1_000,
        );
        self.within(
            "retention.runs",
            settings.retention.runs.into(),
            1,
            1_000_000,
        );
        if let Some(capacity) = settings.pod.capacity {
            self.within("pod.capacity", capacity.into(), 1, 10_000);
        }
        if let Some(threads) = settings.runtime.threads {
            self.within("runtime.threads", threads as u64, 1, 1_024);
        }
    }

    fn names(&mut self, settings: &Settings) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        let namespace = &settings.namespace;
        if namespace.is_empty() || namespace.len() > 64 || !namespace.chars().all(plain) {
            self.refuse(
                "namespace",
                format!("found {namespace:?}, accepted are 1 to 64 of a-z A-Z 0-9 _ - . :"),
            );
        }
        if let Some(Err(error)) = settings.pod.address.as_deref().map(PodAddress::new) {
            self.refuse("pod.address", error.to_string());
        }
        for (label, value) in &settings.pod.labels {
            if let Err(reason) = check_label(label, value) {
                self.refuse(&format!("pod.labels.{label}"), reason);
            }
        }
        for (name, source) in &settings.secrets {
            let key = format!("secrets.{name}");
            if let Err(reason) = check_secret_name(name) {
                self.refuse(&key, reason);
            }
            let source = match source {
                SecretSource::Env(variable) => check_env_name(variable),
                SecretSource::File(path) if path.as_os_str().is_empty() => {
                    Err("found an empty path".into())
                }
                SecretSource::File(_) => Ok(()),
            };
            if let Err(reason) = source {
                self.refuse(&key, reason);
            }
        }
        if let Some(level) = &settings.log.level
            && let Err(error) = tracing_subscriber::EnvFilter::try_new(level)
        {
            self.refuse("log.level", format!("found {level:?}: {error}; accepted is a filter such as \"info\" or \"wasmcron=debug,info\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(change: impl FnOnce(&mut Settings)) -> Vec<String> {
        let mut settings = Settings::default();
        change(&mut settings);
        check(&settings).into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn the_defaults_keep_every_rule() {
        assert_eq!(check(&Settings::default()), []);
    }

    #[test]
    fn leases_outlast_what_they_must() {
        assert_eq!(
            keys(|s| s.lock.ttl = Duration::from_secs(8).into()),
            ["lock.ttl"]
        );
        assert_eq!(
            keys(|s| s.leader.renewal = Duration::from_secs(3).into()),
            ["leader.ttl"]
        );
        assert_eq!(
            keys(|s| s.subscribers.window = Duration::from_secs(5).into()),
            ["subscribers.window"]
        );
        let mut settings = Settings::default();
        settings.lock.renewal = Duration::from_secs(5).into();
        let message = check(&settings)
            .into_iter()
            .map(|(_, message)| message)
            .collect::<String>();
        assert!(
            message.contains("12s 500ms")
                && message.contains("lock.renewal (5s)")
                && message.contains("lock.margin (1s 500ms)"),
            "{message}"
        );
    }

    #[test]
    fn nothing_is_zero_and_everything_has_a_cap() {
        assert_eq!(
            keys(|s| s.recovery.scan = Duration::ZERO.into()),
            ["recovery.scan"]
        );
        assert_eq!(
            keys(|s| s.limits.checkpoint = Size::mib(17)),
            ["limits.checkpoint"]
        );
        assert_eq!(keys(|s| s.pod.capacity = Some(0)), ["pod.capacity"]);
        assert_eq!(
            keys(|s| s.lock.ttl = Duration::from_secs(7_200).into()),
            ["lock.ttl"]
        );
        assert_eq!(keys(|s| s.namespace = "{x}".into()), ["namespace"]);
        assert_eq!(
            keys(|s| s.pod.address = Some("a|b".into())),
            ["pod.address"]
        );
        assert_eq!(
            keys(|s| s.log.level = Some("wasmcron=loud".into())),
            ["log.level"]
        );
    }
}
