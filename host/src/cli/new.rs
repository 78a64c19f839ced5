//! `new`: a Rust plugin project that builds, tests and deploys.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::out::{Answer, Failure, Out};

/// Writes the project.
#[derive(Debug, Args)]
pub struct New {
    /// Name of plugin, job and crate: a-z, 0-9, - and _, beginning with a letter
    #[arg(value_parser = crate_name)]
    pub name: String,
    /// The SDK: a path to `guest-sdk`, or the URL of a Git repository [default: the checkout that this
    /// program was built from]
    #[arg(long, value_name = "PATH|GIT")]
    pub sdk: Option<String>,
    /// Directory of the project [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Names that Cargo or Rust keep for themselves, among those that fit the rule.
const RESERVED: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "wasmcron-guest",
    "where",
    "while",
    "yield",
];

fn crate_name(text: &str) -> Result<String, String> {
    let rule = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= 63
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'));
    if !rule {
        return Err("accepted are 1 to 63 of a-z 0-9 - _, beginning with a letter".into());
    }
    if RESERVED.contains(&text) {
        return Err("this name is reserved by Rust or Cargo".into());
    }
    Ok(text.to_owned())
}

/// The files of a project: where, and what.
const FILES: [(&str, &str); 6] = [
    ("Cargo.toml", include_str!("new/Cargo.toml.tmpl")),
    (".cargo/config.toml", include_str!("new/config.toml.tmpl")),
    (".gitignore", "/target\n/.wasmcron\n"),
    ("README.md", include_str!("new/README.md.tmpl")),
    ("src/lib.rs", include_str!("new/lib.rs.tmpl")),
    ("{{name}}.toml", include_str!("new/job.toml.tmpl")),
];

/// Runs the verb.
pub fn run(out: Out, verb: &New) -> Answer {
    let sdk = dependency(verb.sdk.as_deref())?;
    let dir = verb
        .dir
        .clone()
        .unwrap_or_else(|| PathBuf::from(&verb.name));
    let refuse = |what: &Path, error: std::io::Error| {
        Failure::failed(format!("{}: {error}", what.display()))
    };
    if std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::failed(format!(
            "{} exists and is not empty; nothing was written",
            dir.display()
        )));
    }
    let fill = |text: &str| {
        text.replace("{{name}}", &verb.name)
            .replace("{{file}}", &verb.name.replace('-', "_"))
            .replace("{{sdk}}", &sdk)
    };
    for (name, content) in FILES {
        let path = dir.join(fill(name));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| refuse(parent, error))?;
        }
        std::fs::write(&path, fill(content)).map_err(|error| refuse(&path, error))?;
    }
    if out.json {
        return out.value(
            &json!({ "name": verb.name, "directory": dir.display().to_string(), "sdk": sdk }),
        );
    }
    let shown = dir.display();
    out.line(format!(
        "{shown} is ready:\n  cd {shown}\n  cargo test\n  cargo plugin\n  wasmcron dev"
    ))
}

/// The checkout that this program was built from, as far as it is still there.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-sdk");

/// The SDK as a dependency in the words of `Cargo.toml`.
fn dependency(asked: Option<&str>) -> Result<String, Failure> {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    match asked {
        Some(url) if url.contains("://") || url.starts_with("git@") || url.ends_with(".git") => {
            Ok(format!("git = {}", quoted(url)))
        }
        Some(path) => {
            let path = sdk_at(Path::new(path)).ok_or_else(|| {
                Failure::bad_input(format!("--sdk: {path:?} holds no wasmcron-guest package; accepted are the path of guest-sdk (or of the checkout that has it) and a Git URL"))
            })?;
            Ok(format!("path = {}", quoted(&path.display().to_string())))
        }
        None => match sdk_at(Path::new(BUILT_FROM)) {
            Some(path) => Ok(format!("path = {}", quoted(&path.display().to_string()))),
            None if !env!("CARGO_PKG_REPOSITORY").is_empty() => {
                Ok(format!("git = {}", quoted(env!("CARGO_PKG_REPOSITORY"))))
            }
            None => Err(Failure::failed(
                "the checkout that this program was built from is gone; say where the SDK is: --sdk PATH or --sdk GIT-URL",
            )),
        },
    }
}

/// The SDK's directory in absolute form: the path itself, or `guest-sdk` below it.
fn sdk_at(path: &Path) -> Option<PathBuf> {
    let is_sdk = |dir: &PathBuf| {
        std::fs::read_to_string(dir.join("Cargo.toml"))
            .is_ok_and(|text| text.contains("name = \"wasmcron-guest\""))
    };
    [path.to_owned(), path.join("guest-sdk")]
        .into_iter()
        .find(is_sdk)?
        .canonicalize()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_refuses_are_refused_first() {
        for good in ["hello", "merchant-full-sync", "a1_b"] {
            assert!(crate_name(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "A", "a b", "test", "fn", "../x", "a.b"] {
            assert!(crate_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_sdk_is_a_path_or_a_git_repository() {
        assert_eq!(
            dependency(Some("https://example.com/w.git")).expect("git"),
            "git = \"https://example.com/w.git\""
        );
        let path = dependency(None).expect("this checkout");
        assert!(
            path.starts_with("path = ") && path.contains("guest-sdk"),
            "{path}"
        );
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        assert_eq!(dependency(Some(root)).expect("checkout"), path);
        assert!(dependency(Some("/nonexistent")).is_err());
    }

    #[test]
    fn the_job_file_of_a_new_project_is_accepted() {
        let text = FILES[5].1.replace("{{name}}", "fresh");
        let source = crate::config::document::Source::from_text(Path::new("fresh.toml"), text);
        let file = crate::config::job_file::from_source(
            &source,
            &crate::config::settings::LimitSettings::default(),
        );
        assert_eq!(file.result.expect("a job").name.as_str(), "fresh");
    }
}
