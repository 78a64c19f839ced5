//! `config check`, `config show`, `config schema`.

use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};

use super::context::Globals;
use super::out::{Answer, Failure, note};
use crate::config::fault::Fault;
use crate::config::load::{self, Loaded, Origin};
use crate::config::{job_file, schema};

/// Verbs on configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration and every job file; exit code 2 if something is wrong
    Check,
    /// Every setting with its value and where that came from
    Show,
    /// The JSON schema of the configuration, for editors
    Schema {
        /// Of a job file instead
        #[arg(long)]
        job: bool,
    },
}

/// Runs the verb.
pub fn run(globals: &Globals, command: &ConfigCommand) -> Answer {
    match command {
        ConfigCommand::Check => check(globals),
        ConfigCommand::Show => show(globals),
        ConfigCommand::Schema { job } => {
            let schema = if *job {
                schema::job()
            } else {
                schema::settings()
            };
            globals.out().line(schema::text(&schema))
        }
    }
}

/// `config check`.
#[derive(Debug, Default, Serialize)]
struct Findings {
    /// Nothing is wrong.
    ok: bool,
    /// The configuration file.
    file: Option<String>,
    /// Jobs that were read.
    jobs: Vec<String>,
    /// What is wrong.
    faults: Vec<Fault>,
    /// What is accepted but hardly meant.
    warnings: Vec<String>,
}

fn check(globals: &Globals) -> Answer {
    let mut findings = Findings::default();
    match globals.load() {
        Ok(loaded) => {
            findings.file = loaded.file.as_ref().map(|file| file.display().to_string());
            check_jobs(&loaded, &mut findings);
        }
        Err(error) => findings.faults = error.faults,
    }
    findings.warnings.extend(load::stray_variables(
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()),
    ));
    findings.ok = findings.faults.is_empty();
    report(globals, &findings)
}

fn check_jobs(loaded: &Loaded, findings: &mut Findings) {
    let settings = &loaded.settings;
    if !settings.jobs.directory.exists() {
        let directory = settings.jobs.directory.display();
        findings.warnings.push(format!(
            "jobs.directory: there is no {directory}; `serve` makes it, and it holds no job yet"
        ));
        return;
    }
    let files = match job_file::load_directory(&settings.jobs.directory, &settings.limits) {
        Ok(files) => files,
        Err(error) => return findings.faults.extend(error.faults),
    };
    for file in files {
        let path = file.path.display();
        findings.warnings.extend(
            file.warnings
                .iter()
                .map(|warning| format!("{path}: {warning}")),
        );
        match file.result {
            Ok(job) => {
                let missing = job
                    .allow
                    .secrets
                    .iter()
                    .filter(|name| !settings.secrets.contains_key(*name));
                findings.warnings.extend(missing.map(|name| {
                    format!("{path}: allow.secrets: this pod's [secrets] has no {name:?}")
                }));
                findings.jobs.push(job.name.to_string());
            }
            Err(error) => findings.faults.extend(error.faults),
        }
    }
}

fn report(globals: &Globals, findings: &Findings) -> Answer {
    let out = globals.out();
    if out.json {
        out.value(findings)?;
    } else {
        for warning in &findings.warnings {
            note(format!("warning: {warning}"));
        }
        for fault in &findings.faults {
            note(format!("error: {fault}"));
        }
        if findings.ok {
            let file = findings
                .file
                .as_deref()
                .unwrap_or("no configuration file; the defaults hold");
            out.line(format!("ok: {file}"))?;
            out.line(
                format!(
                    "ok: {} job(s): {}",
                    findings.jobs.len(),
                    findings.jobs.join(", ")
                )
                .trim_end_matches([':', ' ']),
            )?;
        }
    }
    if findings.ok {
        Ok(())
    } else {
        Err(Failure::Said(2))
    }
}

/// One line of `config show`.
#[derive(Debug, Serialize)]
struct SettingView {
    /// The key with its table.
    key: String,
    /// The value; null where nothing is set and the default is found at start.
    value: Value,
    /// Where it came from.
    origin: Origin,
}

fn show(globals: &Globals) -> Answer {
    let loaded = globals.load()?;
    let tree = serde_json::to_value(&loaded.settings)
        .map_err(|error| Failure::failed(format!("cannot show the settings: {error}")))?;
    let settings: Vec<SettingView> = loaded
        .origins
        .iter()
        .map(|(key, origin)| SettingView {
            key: key.clone(),
            value: tree
                .pointer(&format!("/{}", key.replace('.', "/")))
                .cloned()
                .unwrap_or_default(),
            origin: origin.clone(),
        })
        .collect();
    let file = loaded.file.as_ref().map(|file| file.display().to_string());
    if globals.json {
        return globals
            .out()
            .value(&json!({ "file": file, "settings": settings }));
    }
    let rows = settings
        .iter()
        .map(|setting| {
            vec![
                setting.key.clone(),
                shown(&setting.value),
                origin(&setting.origin, file.as_deref()),
            ]
        })
        .collect();
    globals.out().table(&["KEY", "VALUE", "ORIGIN"], rows, "")
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "(not set)".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn origin(origin: &Origin, file: Option<&str>) -> String {
    match origin {
        Origin::File { line } => format!("{}:{line}", file.unwrap_or("?")),
        Origin::Env { variable } => (*variable).to_owned(),
        Origin::Option { option } => (*option).to_owned(),
        Origin::Default => "default".into(),
    }
}
