//! Job files: one job each, `*.toml` in the directory of jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer};
use wasmcron_core::ids::JobName;
use wasmcron_core::job::{Job, Overlap, Reload};

use super::document::Source;
use super::fault::{ConfigError, Fault};
use super::job_convert;
use super::schema;
use super::settings::LimitSettings;
use super::units::{Size, Span};

/// TOML files that belong to others and lie where jobs may lie too: they are no job files.
pub const NO_JOB_FILES: &[&str] = &[
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "pyproject.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "wasmcron.toml",
];

/// Job files in one directory at most.
pub const JOB_FILES_MAX: usize = 100_000;

/// A job file and what became of it.
#[derive(Debug)]
pub struct JobFile {
    /// The file.
    pub path: PathBuf,
    /// The job's name as far as it could be read, also of a file that is otherwise refused: a job
    /// that is in force stays so while its file is wrong.
    pub name: Option<JobName>,
    /// Remarks on what is accepted but hardly meant.
    pub warnings: Vec<String>,
    /// The job, or what is wrong.
    pub result: Result<Job, ConfigError>,
}

/// Whether the file of a job is a plugin that no job file names. Its parameters come with each request.
pub fn is_bare_plugin(file: &Path) -> bool {
    file.extension().is_some_and(|ext| ext == "wasm")
}

/// Reads every job file of a directory, in the order of their names. A bad one does not hurt the
/// others. `caps` is the most that a job may allow itself.
///
/// # Errors
/// When the directory cannot be read. That says nothing of the jobs: those in force stay.
pub fn load_directory(directory: &Path, caps: &LimitSettings) -> Result<Vec<JobFile>, ConfigError> {
    Ok(load_listed(&paths_in(directory)?, caps))
}

/// Reads files that a directory listed. One that was deleted since then is no longer one of them.
fn load_listed(paths: &[PathBuf], caps: &LimitSettings) -> Vec<JobFile> {
    let mut files: Vec<JobFile> = paths.iter().map(|path| load_file(path, caps)).collect();
    files.retain(|file| file.result.is_ok() || !is_gone(&file.path));
    refuse_shared_names(&mut files);
    files
}

/// Whether the directory no longer lists the file. A link that leads nowhere is still listed.
fn is_gone(file: &Path) -> bool {
    std::fs::symlink_metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The job files of a directory, in the order of their names.
///
/// # Errors
/// When the directory cannot be read, or holds more than [`JOB_FILES_MAX`].
pub fn paths_in(directory: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let refuse = |error: std::io::Error| {
        Fault::of_file(
            directory,
            format!("the directory of job files cannot be read: {error}"),
        )
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(refuse)? {
        let entry = entry.map_err(refuse)?;
        let path = entry.path();
        // Most systems tell the kind of an entry with its name, so that no file is asked for it.
        let kind = entry.file_type().map_err(refuse)?;
        let is_folder = kind.is_dir() || (kind.is_symlink() && path.is_dir());
        // Editors and ConfigMap mounts keep copies under hidden names.
        let hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|ext| ext == "toml") && !is_folder {
            paths.push(path);
        }
        if paths.len() > JOB_FILES_MAX {
            let message = format!("more than {JOB_FILES_MAX} job files, which is the limit");
            return Err(Fault::of_file(directory, message).into());
        }
    }
    paths.retain(|path| !NO_JOB_FILES.iter().any(|no| path.ends_with(no)));
    paths.sort_unstable();
    Ok(paths)
}

/// Reads one job file.
pub fn load_file(path: &Path, caps: &LimitSettings) -> JobFile {
    match Source::read(path) {
        Ok(source) => from_source(&source, caps),
        Err(error) => JobFile {
            path: path.to_owned(),
            name: None,
            warnings: Vec::new(),
            result: Err(error),
        },
    }
}

/// Reads a job file's text.
pub fn from_source(source: &Source, caps: &LimitSettings) -> JobFile {
    let mut file = JobFile {
        path: source.file.clone(),
        name: None,
        warnings: Vec::new(),
        result: Err(ConfigError { faults: Vec::new() }),
    };
    let table = match source.table() {
        Ok(table) => table,
        Err(error) => {
            file.result = Err(error);
            return file;
        }
    };
    file.name = table
        .get_ref()
        .get("name")
        .and_then(|name| name.get_ref().as_str())
        .and_then(|name| JobName::new(name).ok());
    file.result = source
        .read_into::<JobToml>(&table, schema::job_shape(), hint)
        .and_then(|toml| job_convert::convert(source, table.get_ref(), toml, caps))
        .map(|(job, warnings)| {
            file.warnings = warnings;
            job
        });
    file
}

/// Adds a job by hand for each plugin that is neither named nor called like a job of these files.
/// `plugins` are names with their files.
pub fn add_bare_plugins(
    files: &mut Vec<JobFile>,
    plugins: impl IntoIterator<Item = (String, PathBuf)>,
    caps: &LimitSettings,
) {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for file in files.iter() {
        known.extend(file.name.iter().map(ToString::to_string));
        known.extend(
            file.result
                .iter()
                .map(|job| job.definition.plugin.to_string()),
        );
    }
    for (name, path) in plugins {
        // A file whose name no job can have serves no job.
        if !known.contains(&name) && JobName::new(&name).is_ok() {
            let source = Source::from_text(&path, format!("name = \"{name}\"\n"));
            files.push(from_source(&source, caps));
        }
    }
}

/// The same job in two files: all of them are refused, since which one a pod took would depend on what
/// it had read before. A pod that serves the job goes on with what it has.
fn refuse_shared_names(files: &mut [JobFile]) {
    let mut paths: BTreeMap<JobName, Vec<PathBuf>> = BTreeMap::new();
    for file in files.iter() {
        if let Some(name) = &file.name {
            paths
                .entry(name.clone())
                .or_default()
                .push(file.path.clone());
        }
    }
    for file in files {
        let Some(name) = &file.name else { continue };
        let others = paths.get(name).into_iter().flatten();
        let Some(other) = others.into_iter().find(|other| **other != file.path) else {
            continue;
        };
        let mut fault = Fault::of_file(
            &file.path,
            format!(
                "{:?} is also the name of the job in {}; each job has one file",
                name.as_str(),
                other.display()
            ),
        );
        fault.key = Some("name".into());
        match &mut file.result {
            Ok(_) => file.result = Err(fault.into()),
            Err(error) => error.faults.push(fault),
        }
    }
}

fn hint(key: &str) -> Option<&'static str> {
    match key {
        "job" | "jobs" => Some(
            "a job file holds one job: write its keys at the top of the file, without [[job]], and give each job a file of its own",
        ),
        "schedule" => {
            Some("unknown key; a schedule is written as `cron = \"0 1 * * *\"` or `every = \"5m\"`")
        }
        "payload" => Some("unknown key; parameters are written in [params]"),
        _ => None,
    }
}

/// A job file as it is written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "wasmcron job file")]
pub struct JobToml {
    /// Name of the job: 1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit.
    pub name: String,
    /// Name of the plugin, that of its file without `.wasm`. Default: the job's name.
    pub plugin: Option<String>,
    /// A disabled job is not fired.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// When it fires: 5 fields, 6 with seconds first, 7 with a year last, or a nickname such as @daily.
    pub cron: Option<String>,
    /// The IANA zone that `cron` is read in. Default: UTC.
    pub timezone: Option<String>,
    /// Fires every so often instead, aligned to 1970-01-01T00:00:00Z; at least 100ms.
    pub every: Option<Span<0>>,
    /// No firing before this RFC 3339 time.
    pub starts: Option<Moment>,
    /// No firing after this RFC 3339 time.
    pub ends: Option<Moment>,
    /// The most by which a firing is put off; derived from job and nominal time, so that all pods agree.
    pub jitter: Option<Span<0>>,
    /// The guest continues from its checkpoint after its pod died.
    #[serde(default)]
    pub resumable: bool,
    /// Run again after a lost attempt although it is not resumable, if it is usually short.
    #[serde(default)]
    pub auto_rerun: bool,
    /// Needs the executing pod to itself.
    #[serde(default)]
    pub exclusive: bool,
    /// Limit of one attempt. Default: 1h.
    pub timeout: Option<Span<3_600_000>>,
    /// Limit of a whole run, from its first claim over waits, attempts and recoveries. Default: none.
    pub run_timeout: Option<Span<0>>,
    /// What happens to a firing that comes while the job still runs.
    #[serde(default)]
    pub overlap: Overlap,
    /// What happens to a firing that was missed.
    pub misfire: Option<MisfireToml>,
    /// Whether and when a failed attempt is followed by another. Default: one attempt.
    #[serde(default)]
    pub retry: RetryToml,
    /// What a newer plugin version means for a running attempt.
    #[serde(default)]
    pub reload: Reload,
    /// Labels that a pod must carry to be picked.
    #[serde(default)]
    pub pods: BTreeMap<String, String>,
    /// SHA-256 of the only plugin version that may run, 64 hexadecimal digits.
    pub digest: Option<String>,
    /// Parameters of the plugin. A value may be `{ env = "NAME" }`, which the executing pod resolves.
    #[serde(default)]
    pub params: BTreeMap<String, Free>,
    /// What an attempt may use.
    #[serde(default)]
    pub limits: LimitsToml,
    /// What an attempt may reach; everything else is denied.
    #[serde(default)]
    pub allow: AllowToml,
}

fn yes() -> bool {
    true
}

/// Any value; parameters are taken from the document itself, where their places are known.
#[derive(Debug)]
pub struct Free;

impl<'de> Deserialize<'de> for Free {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Free)
    }
}

impl JsonSchema for Free {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Free".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

/// An RFC 3339 time, as text or as a date-time of TOML.
#[derive(Clone, Debug)]
pub struct Moment(pub String);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Moment;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time such as \"2026-01-31T01:00:00Z\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Moment, E> {
                Ok(Moment(text.to_owned()))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Moment, A::Error> {
                let written = toml::value::Datetime::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Moment(written.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Moment {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Moment".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// What happens to a firing that was missed: a policy, or a table with its details.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum MisfireToml {
    /// The policy alone.
    Policy(PolicyToml),
    /// The policy and its details.
    Table(MisfireTable),
}

/// Details of a misfire policy.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MisfireTable {
    /// Which missed firings run.
    pub policy: PolicyToml,
    /// How late a firing may be. Default: 10m for once and all, 1m for skip.
    pub grace: Option<Span<0>>,
    /// For `all`: how many at most, 1 to 1000. Default: 100.
    pub max: Option<u32>,
}

/// Which missed firings run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyToml {
    /// None that is later than the grace.
    Skip,
    /// The latest within the grace.
    Once,
    /// The latest `max` within the grace, in order.
    All,
}

impl<'de> Deserialize<'de> for MisfireToml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Serde's own untagged enums answer every mistake with "did not match any variant".
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = MisfireToml;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"skip\", \"once\", \"all\" or a table such as { policy = \"once\", grace = \"30m\" }")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MisfireToml, E> {
                let word = serde::de::value::StrDeserializer::<E>::new(text);
                PolicyToml::deserialize(word).map(MisfireToml::Policy)
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                map: A,
            ) -> Result<MisfireToml, A::Error> {
                MisfireTable::deserialize(MapAccessDeserializer::new(map)).map(MisfireToml::Table)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Whether and when a failed attempt is followed by another.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryToml {
    /// Attempts in all, 1 to 1000; a resumed one does not count. Default: 1.
    pub max_attempts: Option<u32>,
    /// Wait after the first failure; doubles with each further one. Default: 30s.
    pub backoff: Option<Span<30_000>>,
    /// The longest wait. Default: 10m.
    pub max_backoff: Option<Span<600_000>>,
}

/// What an attempt may use. The pod's `[limits]` cap each.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsToml {
    /// Memory, tables and host-side copies together. Default: 256MiB.
    pub memory: Option<Size>,
    /// What a run may log. Default: 1MiB.
    pub log: Option<Size>,
    /// Log lines a second. Default: 1000.
    pub log_lines_per_second: Option<u32>,
    /// One checkpoint. Default: 1MiB.
    pub checkpoint: Option<Size>,
    /// All state of the job. Default: 1MiB.
    pub state: Option<Size>,
    /// One HTTP body. Default: 64MiB.
    pub http_body: Option<Size>,
}

/// What an attempt may reach.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AllowToml {
    /// HTTP origins, each with an optional path prefix, such as `https://api.example.com/v1`.
    pub http: Vec<String>,
    /// Environment variables of the pod.
    pub env: Vec<String>,
    /// Secrets of the pod, by the name under its `[secrets]`.
    pub secrets: Vec<String>,
}

/// How late a firing may be under `skip`, where nothing beyond it runs.
pub const SKIP_GRACE: Duration = Duration::from_secs(60);

#[cfg(test)]
#[path = "job_file_tests.rs"]
mod tests;
