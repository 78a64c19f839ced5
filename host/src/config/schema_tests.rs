use std::path::{Path, PathBuf};

use super::*;
use crate::config::document::Source;
use crate::config::job_file;
use crate::config::load::{self, Sources};
use crate::config::settings::LimitSettings;
use crate::config::store_url::StoreUrl;

fn config(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../config")
        .join(file)
}

#[test]
fn the_committed_schemas_are_current() {
    for (file, schema, command) in [
        ("schema/wasmcron.schema.json", settings(), "config schema"),
        ("schema/job.schema.json", job(), "config schema --job"),
    ] {
        let committed = std::fs::read_to_string(config(file)).unwrap_or_default();
        assert!(
            committed.trim_end() == text(&schema),
            "config/{file} is not current: wasmcron {command} > config/{file}"
        );
    }
}

#[test]
fn the_example_configuration_shows_every_key_with_its_default() {
    let file = config("wasmcron.toml");
    let loaded = load::load(&Sources {
        file: Some(&file),
        folder: Path::new(""),
        store: None,
        env: &|_| None,
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let mut settings = loaded.settings;
    let base = config("");
    for directory in [
        &mut settings.plugins.directory,
        &mut settings.jobs.directory,
    ] {
        *directory = directory
            .strip_prefix(&base)
            .expect("relative to the file")
            .to_owned();
    }
    assert_eq!(
        std::mem::take(&mut settings.store),
        StoreUrl::default().below(&base)
    );
    assert_eq!(settings, Settings::default());
    let text = std::fs::read_to_string(&file).expect("the example");
    for leaf in settings_shape().leaves() {
        assert!(
            shows(&text, &leaf),
            "config/wasmcron.toml does not show {leaf}"
        );
    }
}

/// Whether a key stands in the text, as a comment or not, below its table's header.
fn shows(text: &str, leaf: &str) -> bool {
    let (table, key) = leaf.rsplit_once('.').unwrap_or(("", leaf));
    let mut here = "";
    text.lines()
        .map(|line| line.trim_start_matches(['#', ' ']))
        .any(|line| {
            if let Some(header) = line
                .strip_prefix('[')
                .and_then(|rest| rest.split(']').next())
            {
                here = header;
            }
            here == leaf
                || (here == table
                    && line
                        .strip_prefix(key)
                        .is_some_and(|rest| rest.trim_start().starts_with('=')))
        })
}

#[test]
fn the_example_jobs_are_accepted() {
    let files = job_file::load_directory(&config("jobs"), &LimitSettings::default())
        .expect("the directory");
    let names: Vec<String> = files
        .iter()
        .map(|file| {
            file.result
                .as_ref()
                .unwrap_or_else(|error| panic!("{error}"))
                .name
                .to_string()
        })
        .collect();
    assert_eq!(names, ["daily-report", "hello", "merchant-full-sync"]);
    assert!(files.iter().all(|file| file.warnings.is_empty()));
}

#[test]
fn schemas_describe_what_files_may_hold() {
    let leaves = job_shape().leaves();
    for key in [
        "name",
        "cron",
        "every",
        "limits.memory",
        "allow.http",
        "misfire.policy",
        "retry.backoff",
        "params",
        "pods",
    ] {
        assert!(
            leaves.iter().any(|leaf| leaf == key),
            "{key} not in {leaves:?}"
        );
    }
    let source = Source::from_text(
        Path::new("j.toml"),
        "name = \"a\"\n[params]\nanything = { goes = 1 }\n",
    );
    assert!(
        job_file::from_source(&source, &LimitSettings::default())
            .result
            .is_ok()
    );
}
