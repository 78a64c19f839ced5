//! What the host offers, and words for a plugin that does not fit it.

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use crate::text;

/// Version of the package `wasmcron:job` that this host implements.
pub(crate) const CONTRACT: &str = "0.1.0";
/// The interface that a plugin must export.
pub(crate) const HANDLER: &str = "wasmcron:job/handler";
/// The interface that it may export.
pub(crate) const MIGRATE: &str = "wasmcron:job/migrate";

/// Interfaces that a plugin may import, with the version that the host implements.
const OFFERED: &[(&str, &[&str], &str)] = &[
    (
        "wasmcron:job",
        &[
            "types",
            "checkpoint",
            "state",
            "control",
            "progress",
            "log",
            "secrets",
        ],
        CONTRACT,
    ),
    (
        "wasi:cli",
        &[
            "environment",
            "exit",
            "stderr",
            "stdin",
            "stdout",
            "terminal-input",
            "terminal-output",
            "terminal-stderr",
            "terminal-stdin",
            "terminal-stdout",
        ],
        WASI,
    ),
    ("wasi:clocks", &["monotonic-clock", "wall-clock"], WASI),
    ("wasi:filesystem", &["preopens", "types"], WASI),
    ("wasi:http", &["outgoing-handler", "types"], WASI),
    ("wasi:io", &["error", "poll", "streams"], WASI),
    (
        "wasi:random",
        &["insecure", "insecure-seed", "random"],
        WASI,
    ),
    (
        "wasi:sockets",
        &[
            "instance-network",
            "ip-name-lookup",
            "network",
            "tcp",
            "tcp-create-socket",
            "udp",
            "udp-create-socket",
        ],
        WASI,
    ),
];
/// Version of WASI that wasmtime implements; plugins built for an older 0.2 fit.
const WASI: &str = "0.2.12";

/// Why a component's imports cannot be satisfied, in words: the interface or function, wanted and
/// offered version. `error` is what wasmtime said.
pub(crate) fn explain_imports(
    engine: &Engine,
    component: &Component,
    error: &wasmtime::Error,
) -> String {
    for (name, item) in component.component_type().imports(engine) {
        if matches!(item.ty, ComponentItem::ComponentInstance(_)) {
            if let Some(fault) = import_fault(name) {
                return fault;
            }
        } else if !name.contains('/') {
            return format!(
                "imports `{}`, which this host does not offer",
                text::message(name)
            );
        }
    }
    mismatch(error)
}

/// Why a component's exports are not those of a plugin, in words.
pub(crate) fn explain_exports(
    engine: &Engine,
    component: &Component,
    error: &wasmtime::Error,
) -> String {
    let exports: Vec<String> = component
        .component_type()
        .exports(engine)
        .map(|(name, _)| name.to_owned())
        .collect();
    export_fault(&exports).unwrap_or_else(|| mismatch(error))
}

/// The names fit, a type does not: wasmtime says which.
fn mismatch(error: &wasmtime::Error) -> String {
    format!(
        "does not fit the world `job` of `wasmcron:job@{CONTRACT}`: {}",
        text::message(&format!("{error:#}"))
    )
}

/// What is wrong with the name of an imported interface, if anything is.
fn import_fault(name: &str) -> Option<String> {
    let (interface, wanted) = name.split_once('@').unwrap_or((name, ""));
    let (package, plain) = interface.split_once('/').unwrap_or((interface, ""));
    let offered = OFFERED
        .iter()
        .find(|(offered, _, _)| *offered == package)
        .filter(|(_, interfaces, _)| interfaces.contains(&plain));
    match offered {
        None => Some(format!(
            "imports `{}`, which this host does not offer",
            text::message(name)
        )),
        Some((_, _, version)) if !compatible(wanted, version) => Some(format!(
            "imports `{interface}` in version {}; this host offers {version}",
            if wanted.is_empty() { "none" } else { wanted }
        )),
        Some(_) => None,
    }
}

/// What is wrong with the exports, as far as names tell.
fn export_fault(exports: &[String]) -> Option<String> {
    let wanted = format!("{HANDLER}@{CONTRACT}");
    let found = exports.iter().find_map(|name| {
        name.strip_prefix(HANDLER)?
            .strip_prefix('@')
            .or(Some("none"))
    });
    match found {
        Some(version) if compatible(version, CONTRACT) => None,
        Some(version) => Some(format!(
            "exports `{HANDLER}` in version {}; this host calls {CONTRACT}",
            text::message(version)
        )),
        None if exports.is_empty() => Some(format!("exports nothing; `{wanted}` is wanted")),
        None => Some(format!(
            "does not export `{wanted}`; it exports {}",
            text::message(
                &exports
                    .iter()
                    .map(|name| format!("`{name}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        )),
    }
}

/// Whether versions are the same for linking: the same major version, or the same minor one of 0.x.
fn compatible(wanted: &str, offered: &str) -> bool {
    let track = |version: &str| {
        let mut parts = version.split('.').map(str::to_owned);
        let major = parts.next().unwrap_or_default();
        let minor = parts.next().unwrap_or_default();
        if major == "0" {
            format!("0.{minor}")
        } else {
            major
        }
    };
    !wanted.is_empty() && track(wanted) == track(offered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_names_are_judged_by_interface_and_version() {
        assert_eq!(import_fault("wasi:cli/environment@0.2.3"), None);
        assert_eq!(import_fault("wasmcron:job/log@0.1.7"), None);
        let fault = import_fault("wasmcron:job/log@0.2.0").unwrap_or_default();
        assert!(
            fault.contains("0.2.0") && fault.contains("0.1.0"),
            "{fault}"
        );
        let fault = import_fault("acme:queue/publish@1.0.0").unwrap_or_default();
        assert!(fault.contains("`acme:queue/publish@1.0.0`"), "{fault}");
        assert!(
            import_fault("wasi:clocks/monotonic-clock@0.3.2").is_some_and(|f| f.contains("0.3.2"))
        );
    }

    #[test]
    fn export_names_are_judged_too() {
        let one = |name: &str| export_fault(&[name.to_owned()]);
        assert_eq!(one("wasmcron:job/handler@0.1.0"), None);
        assert!(one("wasmcron:job/handler@0.3.0").is_some_and(|f| f.contains("0.3.0")));
        assert!(one("wasi:cli/run@0.2.0").is_some_and(|f| f.contains("wasi:cli/run@0.2.0")));
        assert!(export_fault(&[]).is_some_and(|f| f.contains("exports nothing")));
    }

    /// The table above against the WIT files themselves.
    #[test]
    fn what_is_offered_is_what_the_wit_says() {
        let wit = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../wit");
        let read = |path: &str| {
            std::fs::read_to_string(wit.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
        };
        for (package, interfaces, version) in OFFERED {
            let file = match package.strip_prefix("wasi:") {
                Some(name) => read(&format!("deps/{name}.wit")),
                None => read("job.wit"),
            };
            assert!(
                file.contains(&format!("package {package}@{version};")),
                "{package}@{version}"
            );
            for interface in *interfaces {
                assert!(
                    file.contains(&format!("interface {interface} {{")),
                    "{package}/{interface}"
                );
            }
        }
    }
}
