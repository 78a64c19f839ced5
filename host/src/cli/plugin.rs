//! `plugin check`, `plugin list`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use wasmcron_runtime::{Plugin, Runtime, RuntimeConfig, Want};

use super::context::{Context, Globals, runtime, with_store};
use super::out::{Answer, Failure};
use super::text;

/// Verbs on plugins.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Load a plugin file as a pod would and say what it is, or why it is refused (exit code 2)
    Check {
        /// A WebAssembly component
        file: PathBuf,
        /// Parameters to check against the plugin's schema, as a JSON object
        #[arg(long, value_name = "JSON")]
        params: Option<String>,
    },
    /// Plugins that live pods serve, with their versions
    List,
}

/// Runs the verb.
pub fn run(globals: &Globals, command: PluginCommand) -> Answer {
    match command {
        PluginCommand::Check { file, params } => check(globals, &file, params.as_deref()),
        PluginCommand::List => with_store(globals, list),
    }
}

/// `plugin check`.
#[derive(Debug, Serialize)]
struct PluginView {
    /// The name jobs refer to.
    name: String,
    /// SHA-256 of the file.
    digest: String,
    /// Size of the file, in bytes.
    bytes: u64,
    /// What it calls itself.
    own_name: String,
    /// Its version, as its author counts.
    version: String,
    /// One sentence.
    description: String,
    /// Number of the format of its checkpoints; 0: none.
    checkpoint_schema: u32,
    /// Whether it reads checkpoints of other formats.
    migrates: bool,
    /// JSON Schema of its parameters; null: any object is accepted.
    parameters: Option<serde_json::Value>,
    /// What it asks the operator to grant.
    wants: Vec<WantView>,
    /// How long compiling took, in milliseconds.
    compile_ms: u128,
}

/// Something a plugin asks for.
#[derive(Debug, Serialize)]
struct WantView {
    /// `http`, `tcp`, `folder-read`, `folder-write`, `env` or `secret`.
    kind: &'static str,
    /// Which one.
    what: String,
}

impl From<&Want> for WantView {
    fn from(want: &Want) -> Self {
        let (kind, what) = match want {
            Want::Http(what) => ("http", what),
            Want::Tcp(what) => ("tcp", what),
            Want::FolderRead(what) => ("folder-read", what),
            Want::FolderWrite(what) => ("folder-write", what),
            Want::Env(what) => ("env", what),
            Want::Secret(what) => ("secret", what),
        };
        WantView {
            kind,
            what: what.clone(),
        }
    }
}

impl From<&Plugin> for PluginView {
    fn from(plugin: &Plugin) -> Self {
        let metadata = plugin.metadata();
        PluginView {
            name: plugin.name().to_owned(),
            digest: plugin.digest().to_string(),
            bytes: plugin.size(),
            own_name: metadata.name.clone(),
            version: metadata.version.clone(),
            description: metadata.description.clone(),
            checkpoint_schema: metadata.checkpoint_schema,
            migrates: plugin.supports_migration(),
            parameters: metadata.parameter_schema.clone(),
            wants: metadata.wants.iter().map(WantView::from).collect(),
            compile_ms: plugin.compile_time().as_millis(),
        }
    }
}

/// The largest plugin file, as pods have it.
const FILE_MAX: u64 = 256 << 20;

fn check(globals: &Globals, file: &Path, params: Option<&str>) -> Answer {
    let settings = globals.load()?.settings;
    let refuse = |message: String| Failure::bad_input(format!("{}: {message}", file.display()));
    let params: Option<serde_json::Value> = params
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| Failure::bad_input(format!("--params: not JSON: {error}")))?;
    let name = plugin_name(file).ok_or_else(|| refuse("the file's name does not name a plugin; accepted is NAME.wasm with 1 to 63 of a-z 0-9 . _ -".into()))?;
    let meta =
        std::fs::metadata(file).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if !meta.is_file() {
        return Err(refuse("is not a regular file".into()));
    }
    let size = meta.len();
    if size > FILE_MAX {
        return Err(refuse(format!(
            "has {size} bytes, at most {FILE_MAX} are accepted"
        )));
    }
    let bytes = std::fs::read(file).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let config = RuntimeConfig {
        guest_threads: 1,
        memory_max: settings.limits.memory.bytes(),
        ..RuntimeConfig::default()
    };
    let tokio = runtime()?;
    let loaded = tokio.block_on(async {
        let engine = Runtime::new(config).map_err(|error| Failure::failed(format!("{error:#}")))?;
        engine
            .load(&name, bytes.into())
            .await
            .map_err(|error| refuse(error.to_string()))
    });
    let plugin = loaded?;
    if let Some(Err(faults)) = params.map(|params| plugin.check_parameters(&params)) {
        return Err(Failure::bad_input(format!(
            "--params: {}",
            faults.join("; ")
        )));
    }
    accepted(globals, file, &plugin)
}

fn accepted(globals: &Globals, file: &Path, plugin: &Plugin) -> Answer {
    let view = PluginView::from(plugin);
    if globals.json {
        return globals.out().value(&view);
    }
    let wants: Vec<String> = view
        .wants
        .iter()
        .map(|want| format!("{} {}", want.kind, want.what))
        .collect();
    let list = |items: &[String], none: &str| {
        if items.is_empty() {
            none.to_owned()
        } else {
            text::plain(&items.join("\n"))
        }
    };
    let checkpoints = match (view.checkpoint_schema, view.migrates) {
        (0, _) => "none".to_owned(),
        (schema, true) => format!("format {schema}, reads older ones"),
        (schema, false) => format!("format {schema}"),
    };
    globals.out().line(format!(
        "{} is a plugin that a pod accepts.",
        file.display()
    ))?;
    globals.out().pairs(&[
        ("name", view.name.clone()),
        ("version", text::plain(&view.version)),
        ("description", text::plain(&view.description)),
        ("digest", view.digest.clone()),
        ("size", format!("{:.1} KiB", plugin.size() as f64 / 1024.0)),
        ("checkpoints", checkpoints),
        (
            "parameters",
            view.parameters
                .as_ref()
                .map_or_else(|| "any object".into(), parameters),
        ),
        ("asks for", list(&wants, "nothing")),
        ("compiled in", text::span(plugin.compile_time())),
    ])
}

/// The properties of a parameter schema, one a line.
fn parameters(schema: &serde_json::Value) -> String {
    let required: BTreeSet<&str> = schema
        .get("required")
        .and_then(|list| list.as_array())
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
        .collect();
    let properties = schema
        .get("properties")
        .and_then(|list| list.as_object())
        .into_iter()
        .flatten();
    let lines: Vec<String> = properties
        .map(|(name, property)| {
            let kind = property
                .get("type")
                .map(|kind| kind.to_string().replace('"', ""))
                .unwrap_or_default();
            let need = if required.contains(name.as_str()) {
                ", required"
            } else {
                ""
            };
            let description = property
                .get("description")
                .and_then(|text| text.as_str())
                .map(|text| format!(": {}", text::brief(text, 100)))
                .unwrap_or_default();
            text::plain(&format!("{name} ({kind}{need}){description}"))
        })
        .collect();
    if lines.is_empty() {
        "none".into()
    } else {
        lines.join("\n")
    }
}

/// The name that jobs refer to, as a pod derives it from the file's.
fn plugin_name(file: &Path) -> Option<String> {
    let name = file.file_stem()?.to_str()?.replace('_', "-");
    wasmcron_core::ids::PluginName::new(&name)
        .ok()
        .map(|name| name.to_string())
}

/// One version of a plugin.
#[derive(Debug, Default, Serialize)]
struct Version {
    /// SHA-256.
    digest: String,
    /// Pods that serve it.
    pods: Vec<String>,
}

async fn list(ctx: Context) -> Answer {
    let now = ctx.store.now().await?;
    let window = ctx.settings.active_window();
    let mut plugins: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for pod in ctx
        .store
        .pods()
        .await?
        .iter()
        .filter(|pod| pod.is_active(now, window))
    {
        for (name, digest) in pod.report.iter().flat_map(|report| &report.plugins) {
            plugins
                .entry(name.to_string())
                .or_default()
                .entry(digest.to_string())
                .or_default()
                .push(pod.address.to_string());
        }
    }
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for job in ctx.jobs().await?.0 {
        let plugin = job.stored.definition.plugin.to_string();
        plugins.entry(plugin.clone()).or_default();
        users.entry(plugin).or_default().push(job.job.to_string());
    }
    if ctx.out.json {
        let views: Vec<serde_json::Value> = plugins
            .into_iter()
            .map(|(name, versions)| {
                let versions: Vec<Version> = versions
                    .into_iter()
                    .map(|(digest, pods)| Version { digest, pods })
                    .collect();
                let jobs = users.get(&name).cloned().unwrap_or_default();
                json!({ "name": name, "versions": versions, "jobs": jobs })
            })
            .collect();
        return ctx.out.value(&json!({ "plugins": views }));
    }
    let mut rows = Vec::new();
    for (name, versions) in &plugins {
        let jobs = users
            .get(name)
            .map(|jobs| jobs.join(" "))
            .unwrap_or_default();
        if versions.is_empty() {
            rows.push(vec![
                name.clone(),
                "missing".into(),
                "no live pod has it".into(),
                jobs.clone(),
            ]);
        }
        for (digest, pods) in versions {
            let digest = digest.get(..12).unwrap_or(digest).to_owned();
            rows.push(vec![name.clone(), digest, pods.join(" "), jobs.clone()]);
        }
    }
    ctx.out.table(
        &["PLUGIN", "DIGEST", "PODS", "JOBS"],
        rows,
        "No live pod serves a plugin.",
    )
}
