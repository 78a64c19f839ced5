use std::collections::BTreeMap;

use super::*;
use crate::config::store_url::StoreUrl;

fn none(_: &str) -> Option<OsString> {
    None
}

fn write(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("wasmcron.toml");
    std::fs::write(&file, text).expect("written");
    (dir, file)
}

fn load_text(text: &str) -> Result<Loaded, String> {
    let (dir, file) = write(text);
    load(&Sources {
        file: Some(&file),
        folder: Path::new(""),
        store: None,
        env: &none,
    })
    .map_err(|error| {
        error
            .to_string()
            .replace(&format!("{}/", dir.path().display()), "")
    })
}

#[test]
fn every_value_knows_its_origin() {
    let (dir, file) =
        write("# fleet\nnamespace = \"fleet\"\n[lock]\nttl = \"20s\"\n[jobs]\ndirectory = \"j\"\n");
    let env: BTreeMap<&str, &str> = [
        ("WASMCRON_POD_ADDRESS", "pod-a"),
        ("WASMCRON_NAMESPACE", "other"),
    ]
    .into();
    let lookup = |name: &str| env.get(name).map(OsString::from);
    let loaded = load(&Sources {
        file: Some(&file),
        folder: Path::new(""),
        store: Some("redis://h:1"),
        env: &lookup,
    })
    .expect("loaded");
    let origin = |key: &str| loaded.origins.get(key).cloned();
    assert_eq!(
        origin("namespace"),
        Some(Origin::Env {
            variable: "WASMCRON_NAMESPACE"
        })
    );
    assert_eq!(origin("lock.ttl"), Some(Origin::File { line: 4 }));
    assert_eq!(origin("store"), Some(Origin::Option { option: "--store" }));
    assert_eq!(origin("lock.margin"), Some(Origin::Default));
    assert_eq!(loaded.settings.namespace, "other");
    assert_eq!(
        loaded.settings.jobs.directory,
        dir.path().join("j"),
        "relative to the file"
    );
}

#[test]
fn the_store_is_a_file_beside_the_configuration_unless_named() {
    let here = load(&Sources {
        file: None,
        folder: Path::new(""),
        store: None,
        env: &none,
    });
    assert_eq!(
        here.expect("loaded").settings.store.to_string(),
        "sqlite://wasmcron.db"
    );
    for (text, below) in [
        ("", "wasmcron.db"),
        ("store = \"sqlite://s/w.db\"", "s/w.db"),
    ] {
        let (dir, file) = write(text);
        let loaded = load(&Sources {
            file: Some(&file),
            folder: Path::new(""),
            store: None,
            env: &none,
        })
        .expect("loaded");
        let expected = dir.path().join(below);
        assert_eq!(loaded.settings.store, StoreUrl::Sqlite(expected));
    }
    // As with other paths, a variable and an option mean what they mean where the command is typed.
    let (_dir, file) = write("");
    let asked = load(&Sources {
        file: Some(&file),
        folder: Path::new(""),
        store: Some("sqlite://w.db"),
        env: &none,
    });
    assert_eq!(
        asked.expect("loaded").settings.store.to_string(),
        "sqlite://w.db"
    );
}

#[test]
fn c101_mistakes_are_refused_with_line_and_key() {
    let table = [
        (
            "[lock]\nttl = 10\n",
            "wasmcron.toml:2:7: lock.ttl: found integer `10`, accepted is a duration with a unit, such as \"30s\"",
        ),
        (
            "\n[lock]\nttl = \"1.5h\"\n",
            "wasmcron.toml:3:7: lock.ttl: \"1.5h\" is not a duration",
        ),
        (
            "[lock]\nttl = \"99999999999h\"\n",
            "wasmcron.toml:2:7: lock.ttl: \"99999999999h\" is",
        ),
        (
            "[lock]\ntll = \"10s\"\n",
            "wasmcron.toml:2:1: lock.tll: unknown key; did you mean `ttl`?",
        ),
        (
            "[lok]\nttl = \"10s\"\n",
            "wasmcron.toml:1:2: lok: unknown key; did you mean `lock`?",
        ),
        (
            "namespace = \"a\"\nnamespace = \"b\"\n",
            "wasmcron.toml:2:1: namespace: duplicate key",
        ),
        ("namespace = \n", "wasmcron.toml:1:"),
        (
            "[log]\nformat = \"jsn\"\n",
            "wasmcron.toml:2:10: log.format: found `jsn` (did you mean `json`?), accepted: `human`",
        ),
        (
            "store = \"http://x\"\n",
            "wasmcron.toml:1:9: store: found \"http\", which is no kind of store; accepted are sqlite://FILE",
        ),
        (
            "\nstore = \"sqlite://:memory:\"\n",
            "wasmcron.toml:2:9: store: found \"sqlite://:memory:\", but a store in memory would be lost",
        ),
        (
            "[http]\nlisten = \"8080\"\n",
            "wasmcron.toml:2:10: http.listen: ",
        ),
        (
            "[lock]\nrenewal = \"9s\"\n",
            "wasmcron.toml: lock.ttl: found 10s, accepted is at least 20s 500ms: twice lock.renewal (9s)",
        ),
        (
            "[lock]\nttl = \"2s\"\n",
            "wasmcron.toml:2:7: lock.ttl: found 2s, accepted is at least 8s 500ms",
        ),
        (
            "[recovery]\nscan = \"0s\"\n",
            "wasmcron.toml:2:8: recovery.scan: found 0s, accepted is at least 50ms",
        ),
        (
            "[secrets]\nx = { envv = \"A\" }\n",
            "wasmcron.toml:2:7: secrets.x.envv: unknown key; did you mean `env`?",
        ),
    ];
    for (text, expected) in table {
        let error = load_text(text).expect_err(text);
        assert!(
            error.starts_with(expected),
            "{text:?}\n  gave     {error}\n  expected {expected}"
        );
    }
}

#[test]
fn c101_byte_order_mark_and_line_ends_do_not_matter() {
    let loaded =
        load_text("\u{feff}namespace = \"a\"\r\n[lock]\r\nttl = \"20s\"\r\n").expect("loaded");
    assert_eq!(loaded.settings.namespace, "a");
    assert_eq!(
        loaded.origins.get("lock.ttl"),
        Some(&Origin::File { line: 3 })
    );
}

#[test]
fn every_mistake_with_keys_is_named_at_once() {
    let error =
        load_text("namspace = \"a\"\n[lock]\nttk = \"1s\"\nstore = \"x\"\n").expect_err("three");
    assert_eq!(error.lines().count(), 3, "{error}");
    assert!(
        error.contains(
            "wasmcron.toml:4:1: lock.store: unknown key in [lock]; `store` belongs at the top"
        ),
        "{error}"
    );
}

#[test]
fn a_bad_variable_is_named() {
    let bad = |name: &str| (name == "WASMCRON_HTTP_LISTEN").then(|| OsString::from("8080"));
    let error = load(&Sources {
        file: None,
        folder: Path::new(""),
        store: None,
        env: &bad,
    })
    .expect_err("bad")
    .to_string();
    assert!(
        error.starts_with("WASMCRON_HTTP_LISTEN: found \"8080\", accepted is"),
        "{error}"
    );
    let near = stray_variables(
        ["WASMCRON_STOER", "WASMCRON_STORE", "PATH"]
            .map(String::from)
            .into_iter(),
    );
    assert_eq!(
        near,
        ["the environment variable WASMCRON_STOER overrides nothing; did you mean WASMCRON_STORE?"]
    );
}

#[test]
fn a_named_file_must_exist() {
    let error = load(&Sources {
        file: Some(Path::new("/nonexistent/w.toml")),
        folder: Path::new(""),
        store: None,
        env: &none,
    })
    .expect_err("missing");
    assert!(
        error
            .to_string()
            .starts_with("/nonexistent/w.toml: cannot be read: "),
        "{error}"
    );
}

#[test]
fn every_override_names_a_key_that_exists() {
    let leaves = schema::settings_shape().leaves();
    for Override { variable, key, .. } in OVERRIDES {
        assert!(leaves.iter().any(|leaf| leaf == key), "{variable}");
        assert_eq!(
            *variable,
            format!("WASMCRON_{}", key.replace('.', "_").to_uppercase())
        );
    }
}

/// Whoever wrote the file hears of everything that is wrong at once, in it and elsewhere.
#[test]
fn every_value_that_does_not_fit_is_named() {
    let (_dir, file) = write(
        "namespace = 7\n[lock]\nttl = \"10\"\nrenewal = \"1s\"\n[pod]\ncapacity = \"many\"\n[jobs]\ndirectory = \"j\"\n",
    );
    let env: BTreeMap<&str, &str> = [("WASMCRON_LOG_FORMAT", "xml")].into();
    let lookup = |name: &str| env.get(name).map(OsString::from);
    let refused = load(&Sources {
        file: Some(&file),
        folder: Path::new(""),
        store: Some("mysql://h"),
        env: &lookup,
    });
    let faults = refused.expect_err("refused").faults;
    let named: Vec<_> = faults
        .iter()
        .map(|fault| (fault.line, fault.key.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!(
        named,
        [
            (Some(1), "namespace"),
            (Some(3), "lock.ttl"),
            (Some(6), "pod.capacity"),
            (None, "WASMCRON_LOG_FORMAT"),
            (None, "--store"),
        ],
        "{faults:#?}"
    );
}

/// The same where every value of the file fits its type.
#[test]
fn rules_and_variables_are_told_together() {
    let (_dir, file) = write("[lock]\nttl = \"1s\"\n");
    let lookup = |name: &str| (name == "WASMCRON_POD_CAPACITY").then(|| "many".into());
    let refused = load(&Sources {
        file: Some(&file),
        folder: Path::new(""),
        store: None,
        env: &lookup,
    });
    let faults = refused.expect_err("refused").faults;
    let named = |key: &str| faults.iter().any(|fault| fault.key.as_deref() == Some(key));
    assert!(
        named("WASMCRON_POD_CAPACITY") && named("lock.ttl"),
        "{faults:#?}"
    );
}
