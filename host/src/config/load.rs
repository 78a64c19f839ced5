//! From file, environment and options to [`Settings`], remembering where each value came from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::check;
use super::document::Source;
use super::fault::{ConfigError, Fault};
use super::known;
use super::schema;
use super::settings::{LogFormat, SecretSource, Settings};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "wasmcron.toml";

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Origin {
    /// The configuration file.
    File {
        /// The line of the value.
        line: usize,
    },
    /// An environment variable.
    Env {
        /// Its name.
        variable: &'static str,
    },
    /// An option of the command line.
    Option {
        /// Its name.
        option: &'static str,
    },
    /// Nobody set it.
    Default,
}

/// What the settings are loaded from.
pub struct Sources<'a> {
    /// The file that was asked for.
    pub file: Option<&'a Path>,
    /// Where [`DEFAULT_FILE`] is looked for if none was.
    pub folder: &'a Path,
    /// The store that was asked for.
    pub store: Option<&'a str>,
    /// The environment.
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
}

/// Settings and where they came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings; relative paths of the file are resolved.
    pub settings: Settings,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Where each key's value came from.
    pub origins: BTreeMap<String, Origin>,
}

/// An environment variable that overrides a key.
pub struct Override {
    /// The variable.
    pub variable: &'static str,
    /// The key.
    pub key: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// Every environment variable that overrides a key. `WASMCRON_CONFIG` names the file itself.
pub const OVERRIDES: &[Override] = &[
    Override {
        variable: "WASMCRON_STORE",
        key: "store",
        set: |s, v| v.parse().map(|v| s.store = v),
    },
    Override {
        variable: "WASMCRON_STORE_CA",
        key: "store_ca",
        set: |s, v| path(v).map(|v| s.store_ca = Some(v)),
    },
    Override {
        variable: "WASMCRON_NAMESPACE",
        key: "namespace",
        set: |s, v| put(&mut s.namespace, v),
    },
    Override {
        variable: "WASMCRON_POD_ADDRESS",
        key: "pod.address",
        set: |s, v| put_some(&mut s.pod.address, v),
    },
    Override {
        variable: "WASMCRON_POD_CAPACITY",
        key: "pod.capacity",
        set: |s, v| count(v).map(|v| s.pod.capacity = Some(v)),
    },
    Override {
        variable: "WASMCRON_PLUGINS_DIRECTORY",
        key: "plugins.directory",
        set: |s, v| path(v).map(|v| s.plugins.directory = v),
    },
    Override {
        variable: "WASMCRON_PLUGINS_CACHE",
        key: "plugins.cache",
        set: |s, v| path(v).map(|v| s.plugins.cache = Some(v)),
    },
    Override {
        variable: "WASMCRON_JOBS_DIRECTORY",
        key: "jobs.directory",
        set: |s, v| path(v).map(|v| s.jobs.directory = v),
    },
    Override {
        variable: "WASMCRON_HTTP_LISTEN",
        key: "http.listen",
        set: |s, v| match v.parse::<std::net::SocketAddr>() {
            Ok(address) => put(&mut s.http.listen, address),
            Err(_) => Err(format!(
                "found {v:?}, accepted is an address with its port such as 127.0.0.1:8080"
            )),
        },
    },
    Override {
        variable: "WASMCRON_LOG_FORMAT",
        key: "log.format",
        set: |s, v| match v {
            "human" => put(&mut s.log.format, LogFormat::Human),
            "json" => put(&mut s.log.format, LogFormat::Json),
            _ => Err(format!("found {v:?}, accepted are human and json")),
        },
    },
    Override {
        variable: "WASMCRON_LOG_LEVEL",
        key: "log.level",
        set: |s, v| put_some(&mut s.log.level, v),
    },
];

fn put<T>(slot: &mut T, value: impl Into<T>) -> Result<(), String> {
    *slot = value.into();
    Ok(())
}

fn put_some(slot: &mut Option<String>, value: &str) -> Result<(), String> {
    *slot = Some(value.to_owned());
    Ok(())
}

fn count(value: &str) -> Result<u32, String> {
    value
        .parse()
        .map_err(|_| format!("found {value:?}, accepted is a whole number"))
}

fn path(value: &str) -> Result<PathBuf, String> {
    if value.is_empty() {
        Err("found nothing, accepted is a path".into())
    } else {
        Ok(value.into())
    }
}

/// Loads the settings: defaults, then the file, then the environment, then options.
///
/// # Errors
/// Everything that is wrong, as far as it can be told at once.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, ConfigError> {
    let file = match sources.file {
        Some(file) => Some(file.to_owned()),
        None => Some(sources.folder.join(DEFAULT_FILE)).filter(|file| file.exists()),
    };
    let source = file.as_deref().map(Source::read).transpose()?;
    let mut loaded = match read(source.as_ref()) {
        Ok(loaded) => loaded,
        Err(mut error) => {
            // What stands elsewhere can be told all the same; what belongs together cannot.
            error.faults.extend(overlay(&mut read(None)?, sources));
            return Err(error);
        }
    };
    let mut faults = overlay(&mut loaded, sources);
    let rules = check::check(&loaded.settings).into_iter();
    faults.extend(
        rules.map(|(key, message)| placed(source.as_ref(), &loaded.origins, &key, message)),
    );
    if faults.is_empty() {
        Ok(loaded)
    } else {
        Err(ConfigError { faults })
    }
}

fn read(source: Option<&Source>) -> Result<Loaded, ConfigError> {
    let shape = schema::settings_shape();
    let mut origins: BTreeMap<String, Origin> = shape
        .leaves()
        .into_iter()
        .map(|key| (key, Origin::Default))
        .collect();
    let Some(source) = source else {
        return Ok(Loaded {
            settings: Settings::default(),
            file: None,
            origins,
        });
    };
    let table = source.table()?;
    let mut settings: Settings = source.read_into(&table, shape, |_| None)?;
    for (key, origin) in &mut origins {
        if let Some(line) = source.line_of(table.get_ref(), key) {
            *origin = Origin::File { line };
        }
    }
    let base = source.file.parent().unwrap_or(Path::new(""));
    resolve_paths(&mut settings, base);
    Ok(Loaded {
        settings,
        file: Some(source.file.clone()),
        origins,
    })
}

/// Paths in a file mean the same wherever the pod is started from.
fn resolve_paths(settings: &mut Settings, base: &Path) {
    let resolve = |path: &mut PathBuf| *path = base.join(&*path);
    settings.store = std::mem::take(&mut settings.store).below(base);
    settings.store_ca.iter_mut().for_each(resolve);
    resolve(&mut settings.plugins.directory);
    resolve(&mut settings.jobs.directory);
    settings.plugins.cache.as_mut().map(resolve);
    for source in settings.secrets.values_mut() {
        if let SecretSource::File(path) = source {
            resolve(path);
        }
    }
}

/// Puts variables and options over what was read; answers those that do not fit.
fn overlay(loaded: &mut Loaded, sources: &Sources<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for Override { variable, key, set } in OVERRIDES {
        let Some(value) = (sources.env)(variable) else {
            continue;
        };
        let result = match value.to_str() {
            Some(text) => set(&mut loaded.settings, text),
            None => Err("not UTF-8 text".into()),
        };
        match result {
            Ok(()) => {
                let origin = Origin::Env { variable };
                loaded.origins.insert((*key).to_owned(), origin);
            }
            Err(message) => faults.push(Fault::of_key(variable, message)),
        }
    }
    if let Some(store) = sources.store {
        match store.parse() {
            Ok(url) => {
                loaded.settings.store = url;
                loaded
                    .origins
                    .insert("store".into(), Origin::Option { option: "--store" });
            }
            Err(message) => faults.push(Fault::of_key("--store", message)),
        }
    }
    faults
}

/// A fault at the place that set the value, or with the key alone where it is a default.
fn placed(
    source: Option<&Source>,
    origins: &BTreeMap<String, Origin>,
    key: &str,
    message: String,
) -> Fault {
    match origins.get(key) {
        Some(Origin::Env { variable }) => {
            return Fault::of_key(key, format!("{message} (set by {variable})"));
        }
        Some(Origin::Option { option }) => {
            return Fault::of_key(key, format!("{message} (set by {option})"));
        }
        _ => {}
    }
    match source.and_then(|source| source.table().ok().map(|table| (source, table))) {
        Some((source, table)) if source.line_of(table.get_ref(), key).is_some() => {
            source.fault_of(table.get_ref(), key, message)
        }
        Some((source, _)) => Fault {
            file: Some(source.file.clone()),
            ..Fault::of_key(
                key,
                format!("{message} (the key is not set: this is its default)"),
            )
        },
        None => Fault::of_key(
            key,
            format!("{message} (the key is not set: this is its default)"),
        ),
    }
}

/// Variables that look like ours and override nothing, with the nearest that does. Remarks only:
/// Kubernetes sets such variables for a service of that name.
pub fn stray_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let known = || {
        OVERRIDES
            .iter()
            .map(|o| o.variable)
            .chain(["WASMCRON_CONFIG"])
    };
    let mut found: Vec<String> = names
        .filter(|name| name.starts_with("WASMCRON_") && !known().any(|k| k == name))
        .map(|name| {
            let near = known::nearest(&name, known())
                .map(|near| format!("; did you mean {near}?"))
                .unwrap_or_default();
            format!("the environment variable {name} overrides nothing{near}")
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
