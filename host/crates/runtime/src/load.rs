//! From bytes to a plugin that may be executed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wasmcron_core::ids::Digest;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::bindings::JobPre;
use crate::bindings::migrator::MigratorPre;
use crate::bindings::wasmcron::job::types as wit;
use crate::control::AttemptControl;
use crate::engine::Shared;
use crate::execute::guarded;
use crate::null_host::NullHost;
use crate::params::ParameterSchema;
use crate::plugin::{CodeOrigin, LoadError, LoadStage, Metadata, Plugin, Want};
use crate::sandbox::{Sandbox, SandboxSpec};
use crate::spec::{Grants, Limits};
use crate::text;
use crate::verdict::{self, Phase};
use crate::world;

/// A page of linear memory, in bytes.
const PAGE: u64 = 64 << 10;
/// Most `wants` of one plugin.
const WANTS_MAX: usize = 64;
/// Longest name, version and want, in bytes.
const NAME_MAX: usize = 256;
/// What `describe` may need on top of the memory that the plugin starts with.
const DESCRIBE_SLACK: u64 = 16 << 20;

type Refused = (LoadStage, String);

/// Loads one plugin. Runs on the guest runtime; compiles on a thread of its own.
pub(crate) async fn load(
    shared: Arc<Shared>,
    name: String,
    bytes: Bytes,
) -> Result<Arc<Plugin>, LoadError> {
    let refuse = |(stage, message): Refused| LoadError::new(&name, stage, message);
    let started = Instant::now();
    check_format(&bytes, shared.config.plugin_max).map_err(refuse)?;
    let size = bytes.len() as u64;
    let (digest, compiled) = compile(&shared, bytes).await.map_err(refuse)?;
    let minimum = check_memory(&compiled.component, shared.config.memory_max).map_err(refuse)?;
    let (pre, migrate) = link(&shared, &compiled.component).map_err(refuse)?;
    let said = describe(&shared, &pre, minimum).await.map_err(refuse)?;
    let (metadata, schema) =
        check_metadata(said).map_err(|message| refuse((LoadStage::Metadata, message)))?;
    Ok(Arc::new(Plugin {
        name,
        digest,
        size,
        metadata,
        origin: compiled.origin,
        compile_time: compiled.time,
        load_time: started.elapsed(),
        memory_minimum: minimum,
        pre,
        migrate,
        schema,
    }))
}

/// Refuses what is no component before anybody tries to compile it.
fn check_format(bytes: &[u8], max: u64) -> Result<(), Refused> {
    let refuse = |message: &str| Err((LoadStage::Format, message.to_owned()));
    if bytes.len() as u64 > max {
        return refuse(&format!(
            "has {} bytes; at most {max} are accepted (`plugin_max`)",
            bytes.len()
        ));
    }
    if bytes.is_empty() {
        return refuse("is an empty file");
    }
    if Engine::detect_precompiled(bytes).is_some() || bytes.starts_with(b"\x7fELF") {
        return refuse(
            "is precompiled code (.cwasm); only components (.wasm) are accepted, which this host compiles itself",
        );
    }
    if !bytes.starts_with(b"\0asm") {
        let text = bytes.trim_ascii_start();
        if text.starts_with(b"(component") || text.starts_with(b"(module") {
            return refuse("is WebAssembly text; a binary component is wanted");
        }
        return refuse("is not WebAssembly: it does not begin with `\\0asm`");
    }
    match bytes.get(4..8) {
        Some([0x0d, 0, 1, 0]) => Ok(()),
        Some([1, 0, 0, 0]) => refuse(
            "is a core module, not a component; build it for wasm32-wasip2, or wrap it with `wasm-tools component new`",
        ),
        Some(_) => refuse("is a component in an encoding that this host does not know"),
        None => refuse("ends within its header"),
    }
}

struct Compiled {
    component: Component,
    origin: CodeOrigin,
    time: Duration,
}

async fn compile(shared: &Arc<Shared>, bytes: Bytes) -> Result<(Digest, Compiled), Refused> {
    let pod = |error: String| (LoadStage::Pod, error);
    let inner = shared.clone();
    let known = on_thread("digest", {
        let bytes = bytes.clone();
        move || {
            let digest = Digest::of(&bytes);
            let started = Instant::now();
            let component = inner
                .cache
                .as_ref()
                .and_then(|cache| cache.load(&inner.engine, &digest));
            (digest, component, started.elapsed())
        }
    });
    let (digest, component, time) = known.await.map_err(pod)?;
    if let Some(component) = component {
        let origin = CodeOrigin::Cache;
        return Ok((
            digest,
            Compiled {
                component,
                origin,
                time,
            },
        ));
    }
    // One compilation at a time: each takes all cores and some hundred megabytes.
    let turn = shared.compiling.clone().acquire_owned().await;
    let inner = shared.clone();
    let key = digest.clone();
    let started = Instant::now();
    let component = on_thread("compile", move || {
        let _turn = turn;
        let result = compile_now(&inner, &key, &bytes);
        drop(bytes);
        give_memory_back();
        result
    })
    .await
    .map_err(pod)?
    .map_err(|error| {
        (
            LoadStage::Compile,
            format!("cannot be compiled: {}", text::message(&error)),
        )
    })?;
    let (origin, time) = (CodeOrigin::Compiled, started.elapsed());
    Ok((
        digest,
        Compiled {
            component,
            origin,
            time,
        },
    ))
}

fn compile_now(shared: &Shared, digest: &Digest, bytes: &[u8]) -> Result<Component, String> {
    let Some(cache) = &shared.cache else {
        return Component::new(&shared.engine, bytes).map_err(|error| format!("{error:#}"));
    };
    let code = shared
        .engine
        .precompile_component(bytes)
        .map_err(|error| format!("{error:#}"))?;
    match cache.store(&shared.engine, digest, &code) {
        Ok(component) => Ok(component),
        Err(error) => {
            tracing::warn!(
                error = format!("{error:#}"),
                "compiled plugin is not cached"
            );
            drop(code);
            Component::new(&shared.engine, bytes).map_err(|error| format!("{error:#}"))
        }
    }
}

/// Runs `work` on an OS thread of its own and waits for it without blocking.
async fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // Nobody waits any more: then nobody needs it.
            let _ = send.send(work());
        })
        .map_err(|error| format!("cannot be loaded now: no thread: {error}"))?;
    receive
        .await
        .map_err(|_| format!("cannot be loaded: the host panicked ({name})"))
}

/// A compilation frees hundreds of megabytes, which the allocator would keep for the next one.
#[allow(unsafe_code)]
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim has no preconditions and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Checks the component against the world.
fn link(
    shared: &Shared,
    component: &Component,
) -> Result<(JobPre<Sandbox>, Option<MigratorPre<Sandbox>>), Refused> {
    let refuse = |words: String| (LoadStage::World, words);
    let instance = shared
        .linker
        .instantiate_pre(component)
        .map_err(|error| refuse(world::explain_imports(&shared.engine, component, &error)))?;
    let explain = |error| refuse(world::explain_exports(&shared.engine, component, &error));
    let pre = JobPre::new(instance.clone()).map_err(explain)?;
    // Who exports it means it, so it has to fit.
    let migrate = component
        .get_export_index(None, format!("{}@{}", world::MIGRATE, world::CONTRACT))
        .map(|_| MigratorPre::new(instance))
        .transpose()
        .map_err(explain)?;
    Ok((pre, migrate))
}

/// The largest memory that the plugin starts with, in bytes.
fn check_memory(component: &Component, max: u64) -> Result<u64, Refused> {
    let minimum = component
        .resources_required()
        .and_then(|required| required.max_initial_memory_size)
        .unwrap_or(0)
        .saturating_mul(PAGE);
    if minimum > max {
        return Err((
            LoadStage::Limits,
            format!(
                "starts with a memory of {minimum} bytes; this pod allows {max} (`limits.memory`)"
            ),
        ));
    }
    Ok(minimum)
}

/// Asks the plugin who it is, with little time and memory and no grants.
async fn describe(
    shared: &Shared,
    pre: &JobPre<Sandbox>,
    minimum: u64,
) -> Result<wit::Metadata, Refused> {
    let limits = Limits {
        time: Some(shared.config.describe_time),
        memory: shared
            .config
            .describe_memory
            .max(minimum.saturating_add(DESCRIBE_SLACK))
            .min(shared.config.memory_max),
        ..Limits::default()
    };
    let sandbox = Sandbox::new(SandboxSpec {
        config: &shared.config,
        client: shared.client.clone(),
        host: Arc::new(NullHost),
        control: AttemptControl::new(),
        grants: Arc::new(Grants::default()),
        limits: &limits,
        checkpoint: None,
        schema: 0,
        attempt: 0,
    });
    // Whoever loads a folder of plugins must not use up the places of attempts.
    let _turn = shared.describing.acquire().await;
    let _ticking = shared.ticker.hold();
    let (mut store, watchdog) = sandbox.into_store(&shared.engine, &limits, Instant::now());
    let mut phase = Phase::Instantiate;
    let result = guarded(&watchdog, async {
        let job = pre.instantiate_async(&mut store).await?;
        phase = Phase::Call;
        job.wasmcron_job_handler().call_describe(&mut store).await
    })
    .await;
    result.map_err(|stopped| {
        let end = verdict::stopped(&stopped, phase, &limits, store.data());
        (
            LoadStage::Describe,
            format!("does not answer `describe`: {}", end.message()),
        )
    })
}

/// Checks what the plugin said of itself.
fn check_metadata(said: wit::Metadata) -> Result<(Metadata, ParameterSchema), String> {
    for (what, value) in [("name", &said.name), ("version", &said.version)] {
        if value.trim().is_empty() || value.len() > NAME_MAX {
            return Err(format!(
                "describes itself with a {what} of {} bytes; 1 to {NAME_MAX} are accepted",
                value.len()
            ));
        }
    }
    if said.wants.len() > WANTS_MAX {
        return Err(format!(
            "wants {} grants; at most {WANTS_MAX} are accepted",
            said.wants.len()
        ));
    }
    let schema = ParameterSchema::parse(&said.parameter_schema)
        .map_err(|fault| format!("cannot be used: its parameter schema {fault}"))?;
    let short = |text: &str| text::one_line(text, NAME_MAX).0;
    let wants = said
        .wants
        .iter()
        .map(|want| match want {
            wit::Want::Http(origin) => Want::Http(short(origin)),
            wit::Want::Tcp(endpoint) => Want::Tcp(short(endpoint)),
            wit::Want::Folder(folder) => match folder.access {
                wit::FolderAccess::Read => Want::FolderRead(short(&folder.path)),
                wit::FolderAccess::Write => Want::FolderWrite(short(&folder.path)),
            },
            wit::Want::Env(name) => Want::Env(short(name)),
            wit::Want::Secret(name) => Want::Secret(short(name)),
        })
        .collect();
    let metadata = Metadata {
        name: short(&said.name),
        version: short(&said.version),
        description: text::one_line(&said.description, 1024).0,
        parameter_schema: schema.value().cloned(),
        checkpoint_schema: said.checkpoint_schema,
        wants,
    };
    Ok((metadata, schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_component_is_named() {
        for (bytes, word) in [
            (&b""[..], "empty"),
            (b"hello, world", "not WebAssembly"),
            (b" (component)", "WebAssembly text"),
            (b"\0asm\x01\0\0\0", "core module"),
            (b"\0asm\x0d\0\x01", "ends within its header"),
            (b"\x7fELF\x02", "precompiled"),
        ] {
            let (stage, message) = check_format(bytes, 1000)
                .err()
                .unwrap_or((LoadStage::Read, String::new()));
            assert_eq!(stage, LoadStage::Format);
            assert!(message.contains(word), "{message}");
        }
        assert!(check_format(b"\0asm\x0d\0\x01\0", 1000).is_ok());
        assert!(check_format(b"\0asm\x0d\0\x01\0", 7).is_err_and(|(_, m)| m.contains("at most 7")));
    }
}
