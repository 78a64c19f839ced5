//! The folder of a `wasmcron dev`: what lies where, and the settings of its pod.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::out::Failure;
use crate::config::load::{Loaded, Origin};
use crate::config::settings::{LogFormat, Settings};
use crate::config::store_url::StoreUrl;

/// What `dev` keeps for itself, below the folder.
const OWN: &str = ".wasmcron";
/// Its store there.
const STORE: &str = "dev.db";
/// Where a Rust project's plugins are built, below its target directory.
const BUILT: &str = "wasm32-wasip2/guest";
/// Held while a `dev` runs.
const LOCK: &str = "dev.lock";
/// Compiled plugins, where the user has no cache directory.
const CACHE: &str = "cache";
/// The pod's address: always the same, so that a killed `dev` finds its runs when it is started again.
const ADDRESS: &str = "dev";
/// How long a guest has to yield before the pod ends.
const DRAIN: Duration = Duration::from_secs(10);
/// How often the folders are read although nothing was noticed: shared folders of containers notice
/// nothing.
const POLL: Duration = Duration::from_secs(2);
/// What the pod's own log says unless asked for more: which plugins and jobs came and went, and what
/// is wrong.
const LOG_LEVEL: &str = "warn,wasmcron_runtime::reload=info,wasmcron_host::services::reloader=info";

/// The store of `wasmcron dev DIR`.
pub fn store_of(dir: &Path) -> StoreUrl {
    StoreUrl::Sqlite(dir.join(OWN).join(STORE))
}

/// The folder, taken: no other `dev` runs on it.
pub struct Folder {
    /// Where it is, from the root.
    pub path: PathBuf,
    /// Unlocked when closed, also by the end of the process.
    _lock: File,
}

impl Folder {
    /// Takes the folder, and makes what `dev` keeps in it.
    ///
    /// # Errors
    /// When there is no such folder, it cannot be written, or another `dev` has it.
    pub fn take(dir: &Path) -> Result<Folder, Failure> {
        let path = match dir.canonicalize() {
            Ok(path) if path.is_dir() => path,
            Ok(_) => {
                return Err(Failure::bad_input(format!(
                    "{} is no folder; accepted is the folder that plugins and job files lie in",
                    dir.display()
                )));
            }
            Err(error) => {
                return Err(Failure::bad_input(format!("{}: {error}", dir.display())));
            }
        };
        let own = path.join(OWN);
        let refuse = |what: &Path, error: std::io::Error| {
            Failure::failed(format!("cannot write {}: {error}", what.display()))
        };
        std::fs::create_dir_all(&own).map_err(|error| refuse(&own, error))?;
        let ignore = own.join(".gitignore");
        if !ignore.exists() {
            std::fs::write(&ignore, "*\n").map_err(|error| refuse(&ignore, error))?;
        }
        let lock = own.join(LOCK);
        let file = File::create(&lock).map_err(|error| refuse(&lock, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Folder { path, _lock: file }),
            Err(TryLockError::WouldBlock) => Err(Failure::failed(format!(
                "another `wasmcron dev` runs on {}",
                path.display()
            ))),
            // Some shared folders know no locks; there the second pod ends the first one.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                Ok(Folder { path, _lock: file })
            }
            Err(TryLockError::Error(error)) => Err(refuse(&lock, error)),
        }
    }

    /// What was loaded, as the settings of the pod of this folder. Store, address, port and log are its
    /// own unless a variable or an option says otherwise; directories unless anybody does.
    pub fn settings(&self, loaded: Loaded) -> Settings {
        let Loaded {
            mut settings,
            origins,
            ..
        } = loaded;
        let origin = |key: &str| origins.get(key).unwrap_or(&Origin::Default);
        let unset = |key: &str| *origin(key) == Origin::Default;
        let own = |key: &str| matches!(origin(key), Origin::Default | Origin::File { .. });
        let asked_store = matches!(origin("store"), Origin::Option { .. });
        if !asked_store {
            settings.store = store_of(&self.path);
            if own("pod.address") {
                settings.pod.address = Some(ADDRESS.into());
            }
        }
        if own("http.listen") {
            settings.http.listen = crate::config::settings::HttpSettings::default().listen;
        }
        if own("log.level") {
            settings.log.level = Some(LOG_LEVEL.into());
        }
        if own("log.format") {
            settings.log.format = LogFormat::Human;
        }
        if unset("plugins.directory") {
            settings.plugins.directory = self.plugins();
        }
        if unset("jobs.directory") {
            settings.jobs.directory = self.sub("jobs");
        }
        if unset("plugins.poll") {
            settings.plugins.poll = POLL.into();
        }
        if unset("jobs.poll") {
            settings.jobs.poll = POLL.into();
        }
        if unset("pod.drain_timeout") {
            settings.pod.drain_timeout = DRAIN.into();
        }
        if settings.plugins.cache.is_none() && crate::config::cache_directory().is_none() {
            settings.plugins.cache = Some(self.path.join(OWN).join(CACHE));
        }
        settings.jobs.bare_plugins = true;
        settings
    }

    /// A usual subfolder if there is one, else the folder itself.
    fn sub(&self, name: &str) -> PathBuf {
        Some(self.path.join(name))
            .filter(|sub| sub.is_dir())
            .unwrap_or_else(|| self.path.clone())
    }

    /// Where plugins are: `plugins/` if there is one; in a Rust project what `cargo plugin` builds;
    /// else the folder itself.
    fn plugins(&self) -> PathBuf {
        let sub = self.sub("plugins");
        if sub != self.path || !self.path.join("Cargo.toml").is_file() {
            return sub;
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        self.path.join(target).join(BUILT)
    }

    /// Plugins and job files that nobody reads, since a subfolder is read instead: a remark for each kind.
    pub fn passed_over(&self, settings: &Settings) -> Vec<String> {
        let here = |extension: &str| {
            let entries = std::fs::read_dir(&self.path).into_iter().flatten();
            entries.flatten().find_map(|entry| {
                let path = entry.path();
                let fits = path.extension().is_some_and(|found| found == extension)
                    && !crate::config::job_file::NO_JOB_FILES
                        .iter()
                        .any(|no| path.ends_with(no));
                fits.then(|| entry.file_name().display().to_string())
            })
        };
        let kinds = [
            ("wasm", "plugins", &settings.plugins.directory),
            ("toml", "job files", &settings.jobs.directory),
        ];
        kinds
            .into_iter()
            .filter(|(_, _, directory)| **directory != self.path)
            .filter_map(|(extension, kind, directory)| {
                let file = here(extension)?;
                Some(format!(
                    "{file} is not read: the {kind} of this folder are those in {}",
                    directory.display()
                ))
            })
            .collect()
    }
}

/// What to do where there is no job yet.
pub fn no_job(folder: &Path, plugins: &Path) -> String {
    let built = plugins.ends_with(BUILT);
    let has_plugin = || {
        let entries = std::fs::read_dir(plugins).into_iter().flatten();
        let mut names = entries.flatten().map(|entry| entry.path());
        names.any(|path| path.extension().is_some_and(|found| found == "wasm"))
    };
    if !built || has_plugin() {
        return "no job: put a plugin (*.wasm) into the folder, or mend the file that was refused"
            .into();
    }
    // The alias is part of a project that `wasmcron new` made; others need not have it.
    let alias = std::fs::read_to_string(folder.join(".cargo/config.toml"))
        .is_ok_and(|config| config.contains("plugin ="));
    let command = if alias {
        "cargo plugin"
    } else {
        "cargo build --target wasm32-wasip2 --profile guest"
    };
    format!(
        "no plugin was built yet: run `{command}` in another terminal; this waits for *.wasm in {} and takes \
         it into service by itself",
        plugins.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::{self, Sources};

    fn settings_in(dir: &Path, store: Option<&str>, env: &[(&str, &str)]) -> Settings {
        let lookup = |name: &str| {
            let found = env.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        };
        let folder = Folder::take(dir).expect("the folder");
        let loaded = load::load(&Sources {
            file: None,
            folder: &folder.path,
            store,
            env: &lookup,
        });
        folder.settings(loaded.expect("settings"))
    }

    fn temporary() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().canonicalize().expect("its path");
        (dir, path)
    }

    #[test]
    fn an_empty_folder_is_enough() {
        let (_dir, path) = temporary();
        let settings = settings_in(&path, None, &[]);
        assert_eq!(settings.store, store_of(&path));
        assert_eq!(settings.plugins.directory, path);
        assert_eq!(settings.jobs.directory, path);
        assert!(settings.jobs.bare_plugins);
        assert_eq!(settings.pod.address.as_deref(), Some("dev"));
        let ignored = std::fs::read_to_string(path.join(".wasmcron/.gitignore"));
        assert_eq!(ignored.expect("it"), "*\n");
    }

    #[test]
    fn usual_subfolders_and_rust_projects_are_known() {
        let (_dir, path) = temporary();
        std::fs::write(path.join("Cargo.toml"), "").expect("written");
        let built = settings_in(&path, None, &[]).plugins.directory;
        assert!(built.ends_with("wasm32-wasip2/guest"), "{built:?}");
        for sub in ["plugins", "jobs"] {
            std::fs::create_dir(path.join(sub)).expect("made");
        }
        let settings = settings_in(&path, None, &[]);
        assert_eq!(settings.plugins.directory, path.join("plugins"));
        assert_eq!(settings.jobs.directory, path.join("jobs"));
        let folder = Folder::take(&path).expect("the folder");
        assert!(
            folder.passed_over(&settings).is_empty(),
            "Cargo.toml is no job"
        );
        for stray in ["a.wasm", "a.toml"] {
            std::fs::write(path.join(stray), "").expect("written");
        }
        let remarks = folder.passed_over(&settings);
        assert!(
            remarks.len() == 2 && remarks[0].starts_with("a.wasm is not read"),
            "{remarks:?}"
        );
    }

    #[test]
    fn a_project_that_was_not_built_is_told_what_builds_it() {
        let (_dir, path) = temporary();
        std::fs::write(path.join("Cargo.toml"), "").expect("written");
        let plugins = settings_in(&path, None, &[]).plugins.directory;
        let bare = no_job(&path, &plugins);
        assert!(
            bare.contains("cargo build --target wasm32-wasip2")
                && bare.contains("waits for *.wasm in"),
            "{bare}"
        );
        std::fs::create_dir(path.join(".cargo")).expect("made");
        std::fs::write(
            path.join(".cargo/config.toml"),
            "[alias]\nplugin = \"build\"\n",
        )
        .expect("written");
        assert!(no_job(&path, &plugins).contains("run `cargo plugin`"));
        std::fs::create_dir_all(&plugins).expect("made");
        std::fs::write(plugins.join("x.wasm"), "").expect("written");
        assert!(no_job(&path, &plugins).contains("mend the file"));
        assert!(no_job(&path, &path).contains("put a plugin"));
    }

    #[test]
    fn a_configuration_is_read_but_for_what_is_devs_own() {
        let (_dir, path) = temporary();
        let text = "store = \"redis://h:1\"\nhttp.listen = \"127.0.0.1:9091\"\n\
                    jobs.directory = \"cron\"\nlimits.memory = \"64MiB\"\n";
        std::fs::write(path.join("wasmcron.toml"), text).expect("written");
        let settings = settings_in(&path, None, &[("WASMCRON_STORE", "redis://h:2")]);
        assert_eq!(settings.store, store_of(&path));
        assert_eq!(settings.http.listen.port(), 0);
        assert_eq!(settings.jobs.directory, path.join("cron"));
        assert_eq!(settings.limits.memory.bytes(), 64 << 20);
        let asked = settings_in(
            &path,
            Some("redis://h:3"),
            &[("WASMCRON_HTTP_LISTEN", "127.0.0.1:9092")],
        );
        assert_eq!(asked.store.to_string(), "redis://h:3");
        assert_eq!(asked.http.listen.port(), 9092);
        assert_eq!(asked.pod.address, None);
    }

    #[test]
    fn a_folder_has_one_dev() {
        let (_dir, path) = temporary();
        let first = Folder::take(&path).expect("the folder");
        let Err(Failure::Failed(refused)) = Folder::take(&path) else {
            panic!("taken twice")
        };
        assert!(refused.contains("another `wasmcron dev`"), "{refused}");
        drop(first);
        assert!(Folder::take(&path).is_ok());
        for wrong in [path.join("none"), path.join(".wasmcron/.gitignore")] {
            let refused = Folder::take(&wrong);
            assert!(matches!(refused, Err(Failure::BadInput(_))), "{wrong:?}");
        }
    }
}
