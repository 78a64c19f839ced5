//! The command line as a person or a script meets it, for everything that needs no store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The command in an environment of its own: nothing of the caller's configuration counts.
fn wasmcron(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasmcron"));
    command.current_dir(dir).env_clear();
    command
}

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn said(output: Output) -> Said {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Said {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

fn run_in(dir: &Path, args: &[&str]) -> Said {
    said(wasmcron(dir).args(args).output().expect("the program runs"))
}

fn run(args: &[&str]) -> Said {
    run_in(&std::env::temp_dir(), args)
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}", said.out))
}

#[test]
fn cron_next_prints_exactly_one_object() {
    let args = [
        "cron",
        "next",
        "30 2 * * *",
        "--tz",
        "America/New_York",
        "--from",
        "2025-03-08T00:00:00Z",
        "--count",
        "2",
        "--json",
    ];
    let said = run(&args);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(
        said.out,
        "{\"expression\":\"30 2 * * *\",\"timezone\":\"America/New_York\",\"next\":[\"2025-03-08T07:30:00Z\",\"2025-03-09T07:00:00Z\"]}\n"
    );
}

#[test]
fn cron_next_shows_people_local_time_and_what_a_clock_change_did() {
    let said = run(&[
        "cron",
        "next",
        "30 2 * * *",
        "--tz",
        "America/New_York",
        "--from",
        "2025-03-09T00:00:00Z",
        "--count",
        "1",
    ]);
    assert!(
        said.out.contains("03:00:00 -04:00") && said.out.contains("does not exist"),
        "{}",
        said.out
    );
}

#[test]
fn a_count_or_time_out_of_bounds_is_bad_usage() {
    for extra in [
        ["--count", "0"],
        ["--count", "1001"],
        ["--count", "x"],
        ["--from", "tomorrow"],
        ["--tz", "IST"],
    ] {
        let said = run(&[["cron", "next", "* * * * *"].as_slice(), &extra].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{extra:?}");
        assert!(!said.err.is_empty());
    }
    assert_eq!(run(&["nonsense"]).code, Some(2));
    assert_eq!(run(&["--version"]).code, Some(0));
}

#[test]
fn c08_a_date_that_never_comes_is_refused_at_once() {
    for expression in [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "* * 31 11 *",
        "0 0 30 2 */2",
    ] {
        let began = Instant::now();
        let said = run(&["cron", "next", expression, "--json"]);
        assert_eq!(
            (said.code, said.out.as_str()),
            (Some(2), ""),
            "{expression}"
        );
        assert!(
            said.err.contains("never fires") && said.err.contains(expression),
            "{}",
            said.err
        );
        // Starting the process included, on a busy machine.
        assert!(began.elapsed() < Duration::from_secs(2));
    }
    let said = run(&[
        "cron",
        "next",
        "0 0 30 2 1",
        "--from",
        "2025-01-01T00:00:00Z",
        "--json",
    ]);
    assert_eq!(json(&said)["next"][0], "2025-02-03T00:00:00Z");
}

#[test]
fn c11_a_step_of_zero_is_refused_naming_the_field() {
    for (expression, field) in [
        ("*/0 * * * *", "minute"),
        ("0 */0 * * * *", "minute"),
        ("10-20/0 * * * *", "minute"),
    ] {
        let said = run(&["cron", "next", expression]);
        assert_eq!(said.code, Some(2), "{expression}");
        assert!(
            said.err.contains(field) && said.err.contains("step"),
            "{}",
            said.err
        );
    }
}

/// A directory with a configuration and job files.
fn project(config: &str, jobs: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("jobs")).expect("jobs");
    std::fs::write(dir.path().join("wasmcron.toml"), config).expect("written");
    for (name, text) in jobs {
        std::fs::write(dir.path().join("jobs").join(name), text).expect("written");
    }
    dir
}

#[test]
fn c101_config_check_names_file_line_and_nearest_key() {
    let dir = project("[lock]\ntll = \"10s\"\n", &[]);
    let said = run_in(dir.path(), &["config", "check"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err
            .contains("wasmcron.toml:2:1: lock.tll: unknown key; did you mean `ttl`?"),
        "{}",
        said.err
    );
}

#[test]
fn c101_config_check_names_every_bad_job_file_and_reads_the_good_ones() {
    let dir = project(
        "",
        &[
            ("a.toml", "\u{feff}name = \"a\"\r\ncron = \"@daily\"\r\n"),
            ("b.toml", "name = \"b\"\ncorn = \"0 1 * * *\"\n"),
            ("c.toml", "[[job]]\ncorn = \"0 1 * * *\"\n"),
            ("d.toml", "name = \"d\"\ntimeout = \"10\"\n"),
            ("e.toml", "name = \"e\"\n"),
            ("e2.toml", "name = \"e\"\n"),
            ("f.toml", "name = \"f\"\ncron = \"0 0 30 2 *\"\n"),
            ("g.toml", "name = \"g\"\nname = \"h\"\n"),
            ("h.toml", "name = \"h\"\n[limits]\nauto_rerun = true\n"),
        ],
    );
    let said = run_in(dir.path(), &["config", "check", "--json"]);
    assert_eq!(said.code, Some(2));
    let answer = json(&said);
    assert_eq!(
        (&answer["ok"], &answer["jobs"]),
        (&Value::Bool(false), &serde_json::json!(["a"]))
    );
    let faults: Vec<String> = answer["faults"]
        .as_array()
        .expect("faults")
        .iter()
        .map(|fault| {
            let file = fault["file"]
                .as_str()
                .and_then(|file| file.rsplit('/').next())
                .unwrap_or("-");
            format!(
                "{file}:{} {}: {}",
                fault["line"],
                fault["key"].as_str().unwrap_or("-"),
                fault["message"].as_str().unwrap_or("-")
            )
        })
        .collect();
    let expected = [
        "b.toml:2 corn: unknown key; did you mean `cron`?",
        "c.toml:1 job: a job file holds one job",
        "d.toml:2 timeout: \"10\" is not a duration",
        "e.toml:null name: \"e\" is also the name of the job in jobs/e2.toml",
        "e2.toml:null name: \"e\" is also the name of the job in jobs/e.toml",
        "f.toml:2 cron: job \"f\": the cron expression \"0 0 30 2 *\" never fires",
        "g.toml:2 name: duplicate key",
        "h.toml:3 limits.auto_rerun: unknown key in [limits]; `auto_rerun` belongs at the top",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (found, expected) in faults.iter().zip(expected) {
        assert!(
            found.starts_with(expected),
            "{found}\n  expected {expected}"
        );
    }
}

#[test]
fn config_show_tells_where_each_value_came_from_and_no_password() {
    let dir = project(
        "store = \"redis://ops:hunter2@h:1\"\n\n[lock]\nttl = \"20s\"\n",
        &[],
    );
    let mut command = wasmcron(dir.path());
    let said = said(
        command
            .env("WASMCRON_LOG_FORMAT", "json")
            .args(["config", "show", "--json"])
            .output()
            .expect("runs"),
    );
    assert!(!said.out.contains("hunter2"), "{}", said.out);
    let settings = json(&said)["settings"].clone();
    let find = |key: &str| {
        settings
            .as_array()
            .expect("settings")
            .iter()
            .find(|s| s["key"] == key)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(find("store")["value"], "redis://ops:***@h:1");
    assert_eq!(
        find("lock.ttl")["origin"],
        serde_json::json!({ "kind": "file", "line": 4 })
    );
    assert_eq!(
        find("log.format")["origin"],
        serde_json::json!({ "kind": "env", "variable": "WASMCRON_LOG_FORMAT" })
    );
    assert_eq!(
        find("leader.ttl")["origin"],
        serde_json::json!({ "kind": "default" })
    );
}

#[test]
fn a_configuration_that_is_named_must_exist_and_none_is_needed() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = run_in(dir.path(), &["--config", "none.toml", "config", "show"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err.contains("none.toml: cannot be read"),
        "{}",
        said.err
    );
    let said = run_in(dir.path(), &["config", "show"]);
    assert_eq!(said.code, Some(0));
    assert!(said.out.contains("sqlite://wasmcron.db"), "{}", said.out);
}

#[test]
fn a_store_file_that_is_not_there_is_named_and_not_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = tempfile::tempdir().expect("a directory");
    let path = |name: &str| other.path().join(name).display().to_string();
    std::fs::write(other.path().join("w.toml"), "namespace = \"n\"\n").expect("written");
    let url = format!("sqlite://{}", path("x.db"));
    let cases = [
        (vec![], "sqlite://wasmcron.db".to_owned()),
        (vec!["--store", &url], url.clone()),
        (
            vec!["--config", "OTHER/w.toml"],
            format!("sqlite://{}", path("wasmcron.db")),
        ),
        (
            vec!["--dev", "OTHER"],
            format!("sqlite://{}", path(".wasmcron/dev.db")),
        ),
    ];
    let at = other.path().display().to_string();
    for (options, named) in cases {
        let options: Vec<String> = options
            .iter()
            .map(|word| word.replace("OTHER", &at))
            .collect();
        let mut args = vec!["job", "list"];
        args.extend(options.iter().map(String::as_str));
        let said = run_in(dir.path(), &args);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(
            said.err.contains(&named) && said.err.contains("no such file"),
            "{args:?}: {}",
            said.err
        );
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("it").count(), 0);
    assert_eq!(std::fs::read_dir(other.path()).expect("it").count(), 1);
}

#[test]
fn dev_needs_a_folder_and_nothing_else_beside_it() {
    let dir = tempfile::tempdir().expect("a directory");
    for (args, words) in [
        (vec!["dev", "none"], "none"),
        (vec!["dev", "--dev", "."], "--dev"),
        (
            vec!["job", "list", "--dev", ".", "--store", "redis://h:1"],
            "--store",
        ),
        (vec!["dev", "--store", "sqlite://:memory:"], "in memory"),
    ] {
        let said = run_in(dir.path(), &args);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(said.err.contains(words), "{args:?}: {}", said.err);
    }
}

#[test]
fn a_store_that_refuses_is_named_without_its_password() {
    // A port that nobody listens on: bound, then free again.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    let url = format!("redis://ops:hunter2@127.0.0.1:{port}");
    for verb in [
        ["job", "list"],
        ["run", "list"],
        ["pod", "list"],
        ["plugin", "list"],
    ] {
        let said = run(&[verb.as_slice(), &["--store", &url]].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{verb:?}");
        assert!(
            said.err
                .contains(&format!("redis://ops:***@127.0.0.1:{port}"))
                && !said.err.contains("hunter2"),
            "{}",
            said.err
        );
    }
}

#[test]
fn a_store_that_never_answers_costs_seconds_and_not_forever() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let began = Instant::now();
    let said = run(&["job", "list", "--store", &url]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains(&url), "{}", said.err);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn bad_ids_and_parameters_are_bad_usage_before_any_store_is_asked() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    let url = format!("redis://127.0.0.1:{port}");
    for args in [
        ["run", "show", "nonsense"],
        ["job", "show", "A b"],
        ["checkpoint", "show", "x@y"],
    ] {
        assert_eq!(
            run(&[args.as_slice(), &["--store", &url]].concat()).code,
            Some(2),
            "{args:?}"
        );
    }
    let said = run(&["job", "list", "--store", "http://x"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err.contains("--store") && said.err.contains("sqlite://FILE"),
        "{}",
        said.err
    );
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut child = wasmcron(&std::env::temp_dir())
        .args(["cron", "next", "* * * * * *", "--count", "1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .expect("stderr")
        .read_to_string(&mut stderr)
        .expect("read");
    let status = child.wait().expect("ended");
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn what_is_no_plugin_is_refused_with_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = std::fs::File::create(dir.path().join("text.wasm")).expect("a file");
    file.write_all(b"not wasm").expect("written");
    // A core module, which is no component.
    std::fs::write(dir.path().join("module.wasm"), b"\0asm\x01\0\0\0").expect("written");
    std::fs::write(dir.path().join("empty.wasm"), b"").expect("written");
    for name in ["text.wasm", "module.wasm", "empty.wasm", "missing.wasm"] {
        let said = run_in(dir.path(), &["plugin", "check", name]);
        assert_eq!(
            (said.code, said.out.as_str()),
            (Some(2), ""),
            "{name}: {}",
            said.err
        );
        assert!(said.err.contains(name), "{}", said.err);
    }
}

#[test]
fn schemas_and_completions_are_printed() {
    assert_eq!(json(&run(&["config", "schema"]))["title"], "Settings");
    assert_eq!(
        json(&run(&["config", "schema", "--job"]))["title"],
        "wasmcron job file"
    );
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            run(&["completions", shell]).out.contains("wasmcron"),
            "{shell}"
        );
    }
}

#[test]
fn a_name_that_cargo_would_refuse_is_bad_usage() {
    for name in ["1st", "Upper", "test", "../up"] {
        assert_eq!(run(&["new", name]).code, Some(2), "{name}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("kept"), "").expect("written");
    let said = run(&["new", "fresh", "--dir", dir.path().to_str().expect("UTF-8")]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("not empty"), "{}", said.err);
}
