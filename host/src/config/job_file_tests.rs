use wasmcron_core::job::MisfirePolicy;
use wasmcron_core::schedule::Trigger;

use super::*;

const EXAMPLE: &str = r#"
name = "merchant-full-sync"
plugin = "merchant-full-sync"
enabled = true
cron = "0 1 * * *"
timezone = "Asia/Shanghai"
resumable = true
auto_rerun = true
exclusive = false
timeout = "2h"
run_timeout = "6h"
overlap = "skip"
misfire = { policy = "once", grace = "30m" }
retry = { max_attempts = 3, backoff = "30s", max_backoff = "10m" }
jitter = "0s"
starts = 2026-01-01T00:00:00Z
ends = "2030-01-01T00:00:00+08:00"
pods = { zone = "eu" }
[params]
source = "https://api.example.com/merchants"
token = { env = "API_TOKEN" }
[limits]
memory = "256MiB"
[allow]
http = ["https://api.example.com"]
secrets = ["key"]
"#;

fn read(text: &str) -> JobFile {
    from_source(
        &Source::from_text(Path::new("j.toml"), text),
        &LimitSettings::default(),
    )
}

fn job(text: &str) -> Job {
    read(text)
        .result
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    read(text).result.expect_err(text).to_string()
}

#[test]
fn the_documented_example_is_read() {
    let job = job(EXAMPLE);
    let definition = &job.definition;
    assert_eq!(job.name.as_str(), "merchant-full-sync");
    assert!(definition.resumable && definition.auto_rerun && !definition.exclusive);
    assert_eq!(definition.timeout, Duration::from_secs(7_200));
    assert_eq!(definition.run_timeout, Some(Duration::from_secs(21_600)));
    assert_eq!(definition.misfire.grace, Duration::from_secs(1_800));
    assert_eq!(definition.retry.max_attempts, 3);
    assert_eq!(
        definition.params,
        r#"{"source":"https://api.example.com/merchants","token":{"env":"API_TOKEN"}}"#
    );
    assert_eq!(
        definition.schedule.ends.map(|t| t.to_string()).as_deref(),
        Some("2029-12-31T16:00:00Z")
    );
    assert_eq!(job.limits.memory, 256 << 20);
    assert_eq!(job.allow.http, ["https://api.example.com"]);
}

#[test]
fn a_job_of_one_line_has_the_documented_defaults() {
    let job = job("name = \"hello\"\n");
    let definition = &job.definition;
    assert_eq!(definition.plugin.as_str(), "hello");
    assert_eq!(definition.schedule.trigger, Trigger::Manual);
    assert_eq!(definition.timeout, Duration::from_secs(3_600));
    assert_eq!(definition.run_timeout, None);
    assert_eq!(
        (definition.misfire.policy, definition.misfire.grace),
        (MisfirePolicy::Once, Duration::from_secs(600))
    );
    assert_eq!(definition.retry.max_attempts, 1);
    assert_eq!(definition.params, "{}");
    assert!(definition.enabled);
}

#[test]
fn misfire_is_a_word_or_a_table() {
    let misfire = |text: &str| {
        job(&format!(
            "name = \"a\"\ncron = \"@daily\"\nmisfire = {text}\n"
        ))
        .definition
        .misfire
    };
    assert_eq!(misfire("\"skip\"").grace, SKIP_GRACE);
    assert_eq!(misfire("\"all\"").policy, MisfirePolicy::All { max: 100 });
    assert_eq!(
        misfire("{ policy = \"all\", max = 3 }").policy,
        MisfirePolicy::All { max: 3 }
    );
}

#[test]
fn equal_files_make_equal_hashes_whatever_the_order_of_keys() {
    let one = job("name = \"a\"\n[params]\nx = 1\ny = 2\n")
        .definition
        .hash();
    let two = job("\u{feff}name = \"a\"\r\nparams = { y = 2, x = 1 }\r\n")
        .definition
        .hash();
    assert_eq!(one, two);
}

/// A file that is refused, and how the message begins.
const REFUSED: &[(&str, &str)] = &[
    (
        "name = \"a\"\ncorn = \"0 1 * * *\"\n",
        "j.toml:2:1: corn: unknown key; did you mean `cron`?",
    ),
    (
        "[[job]]\nname = \"a\"\n",
        "j.toml:1:3: job: a job file holds one job",
    ),
    (
        "name = \"a\"\n[limits]\nauto_rerun = true\n",
        "j.toml:3:1: limits.auto_rerun: unknown key in [limits]; `auto_rerun` belongs at the top",
    ),
    (
        "name = \"a\"\ncron = \"@daily\"\ncron = \"@hourly\"\n",
        "j.toml:3:1: cron: duplicate key",
    ),
    (
        "name = \"a\"\ntimeout = 10\n",
        "j.toml:2:11: timeout: found integer `10`, accepted is a duration",
    ),
    (
        "name = \"a\"\ntimeout = \"10\"\n",
        "j.toml:2:11: timeout: \"10\" is not a duration",
    ),
    (
        "name = \"a\"\ntimeout = \"-5s\"\n",
        "j.toml:2:11: timeout: \"-5s\" is not a duration",
    ),
    (
        "name = \"a\"\ntimeout = \"1.5h\"\n",
        "j.toml:2:11: timeout: \"1.5h\" is not a duration",
    ),
    (
        "name = \"a\"\ntimeout = \"99999999999h\"\n",
        "j.toml:2:11: timeout: \"99999999999h\" is",
    ),
    ("enabled = true\n", "j.toml:1:1: the key `name` is missing"),
    (
        "name = \"A b\"\n",
        "j.toml:1:8: name: \"A b\" is not a job name; accepted: ",
    ),
    (
        "name = \"a\"\nplugin = \"x y\"\n",
        "j.toml:2:10: plugin: \"x y\" is not a plugin name",
    ),
    (
        "name = \"a\"\noverlap = \"skpi\"\n",
        "j.toml:2:11: overlap: found `skpi` (did you mean `skip`?), accepted: `skip`, `queue`, `replace`",
    ),
    (
        "name = \"a\"\ncron = \"@daily\"\nevery = \"5m\"\n",
        "j.toml:3:9: every: a job has `cron` or `every`, not both",
    ),
    (
        "name = \"a\"\nevery = \"10ms\"\n",
        "j.toml:2:9: every: found 10ms, accepted is at least 100ms",
    ),
    (
        "name = \"a\"\nevery = \"5m\"\ntimezone = \"UTC\"\n",
        "j.toml:3:12: timezone: has no effect",
    ),
    (
        "name = \"a\"\ncron = \"@daily\"\ntimezone = \"Asia/Shangai\"\n",
        "j.toml:3:12: timezone: unknown time zone \"Asia/Shangai\" (did you mean \"Asia/Shanghai\"?)",
    ),
    (
        "name = \"a\"\ncron = \"@daily\"\nstarts = \"tomorrow\"\n",
        "j.toml:3:10: starts: \"tomorrow\" is not a time",
    ),
    (
        "name = \"a\"\ncron = \"@daily\"\nstarts = 2026-01-01\n",
        "j.toml:3:10: starts: \"2026-01-01\" is not a time",
    ),
    (
        "name = \"a\"\nmisfire = \"never\"\n",
        "j.toml:2:11: misfire: found `never`, accepted: `skip`, `once`, `all`",
    ),
    (
        "name = \"a\"\nmisfire = \"once\"\n",
        "j.toml:2:11: misfire: has no effect: the job has neither",
    ),
    (
        "name = \"a\"\ncron = \"@daily\"\nmisfire = { policy = \"once\", max = 2 }\n",
        "j.toml:3:36: misfire.max: has no effect unless",
    ),
    (
        "name = \"a\"\nretry = { max_attempts = 0 }\n",
        "j.toml:2:26: retry.max_attempts: found 0, accepted are 1 to 1000",
    ),
    (
        "name = \"a\"\nretry = { backoff = \"1h\", max_backoff = \"1m\" }\n",
        "j.toml:2:41: retry.max_backoff: found 1m, accepted is at least `backoff` (1h)",
    ),
    (
        "name = \"a\"\ndigest = \"abc\"\n",
        "j.toml:2:10: digest: \"abc\" is not a digest",
    ),
    (
        "name = \"a\"\n[limits]\nmemory = \"2GiB\"\n",
        "j.toml:3:10: limits.memory: found 2GiB, this pod allows at most 1GiB (its limits.memory)",
    ),
    (
        "name = \"a\"\ntimeout = \"48h\"\n",
        "j.toml:2:11: timeout: found 2days, this pod allows at most 1day (its limits.timeout)",
    ),
    (
        "name = \"a\"\nrun_timeout = \"50ms\"\n",
        "j.toml:2:15: run_timeout: found 50ms, accepted is at least 100ms",
    ),
    (
        "name = \"a\"\n[allow]\nhttp = [\"https://ok.example\", \"ftp://x\"]\n",
        "j.toml:3:31: allow.http.1: ",
    ),
    (
        "name = \"a\"\n[params]\nx = { env = \"NO-DASH\" }\n",
        "j.toml:3:13: params.x.env: \"NO-DASH\" is not a variable's name",
    ),
];

#[test]
fn c101_mistakes_are_refused_with_line_and_key() {
    for (text, expected) in REFUSED {
        let error = error(text);
        assert!(
            error.starts_with(expected),
            "{text:?}\n  gave     {error}\n  expected {expected}"
        );
    }
}

#[test]
fn c08_a_date_that_never_comes_is_refused_naming_the_job() {
    for cron in [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "* * 31 11 *",
        "0 0 30 2 */2",
    ] {
        let error = error(&format!("name = \"leap\"\ncron = \"{cron}\"\n"));
        assert!(
            error.starts_with("j.toml:2:8: cron: job \"leap\": ") && error.contains("never fires"),
            "{error}"
        );
    }
    job("name = \"leap\"\ncron = \"0 0 30 2 1\"\n");
}

#[test]
fn c11_a_step_of_zero_is_refused_naming_the_field() {
    for (cron, field) in [
        ("*/0 * * * *", "minute"),
        ("0 */0 * * * *", "minute"),
        ("10-20/0 * * * *", "minute"),
    ] {
        let error = error(&format!("name = \"a\"\ncron = \"{cron}\"\n"));
        assert!(error.contains(field) && error.contains("step"), "{error}");
    }
}

#[test]
fn several_mistakes_are_named_at_once() {
    let error = error("name = \"a\"\ncron = \"61 * * * *\"\ntimezone = \"IST\"\ndigest = \"x\"\n");
    assert_eq!(error.lines().count(), 3, "{error}");
}

#[test]
fn a_pod_with_small_caps_lowers_the_defaults() {
    let caps = LimitSettings {
        memory: Size::mib(64),
        checkpoint: Size::from(1 << 10),
        ..LimitSettings::default()
    };
    let file = from_source(
        &Source::from_text(Path::new("j.toml"), "name = \"a\"\n"),
        &caps,
    );
    let limits = file.result.expect("job").limits;
    assert_eq!((limits.memory, limits.checkpoint), (64 << 20, 1 << 10));
}

#[test]
fn one_bad_file_does_not_hurt_the_others_and_shared_names_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let write =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
    write("a.toml", "name = \"one\"\n");
    write("b.toml", "name = \"two\"\ncorn = 1\n");
    write("c.toml", "name = \"one\"\n");
    write("d.toml", "name = \"two\"\n");
    write(".hidden.toml", "nonsense");
    write("notes.txt", "nonsense");
    write("g.toml", "name = \"good\"\n");
    write("e.toml", "name = \"\u{e9}\"");
    std::fs::write(dir.path().join("f.toml"), b"name = \"x\"\n\xff").expect("written");
    let files = load_directory(dir.path(), &LimitSettings::default()).expect("read");
    let shown: Vec<String> = files
        .iter()
        .map(|file| match &file.result {
            Ok(job) => format!("{} ok", job.name),
            Err(error) => error
                .to_string()
                .replace(&format!("{}/", dir.path().display()), ""),
        })
        .collect();
    assert_eq!(shown.len(), 7, "{shown:#?}");
    assert_eq!(shown[6], "good ok");
    assert_eq!(
        shown[0],
        "a.toml: name: \"one\" is also the name of the job in c.toml; each job has one file"
    );
    assert!(shown[1].starts_with("b.toml:2:1: corn: "), "{shown:#?}");
    assert_eq!(
        files[1].name.as_ref().map(JobName::as_str),
        Some("two"),
        "named although refused"
    );
    assert_eq!(
        shown[2],
        "c.toml: name: \"one\" is also the name of the job in a.toml; each job has one file"
    );
    assert!(
        shown[3].contains("also the name of the job in b.toml"),
        "{shown:#?}"
    );
    assert!(shown[5].starts_with("f.toml:2: not UTF-8"), "{shown:#?}");
    assert!(load_directory(&dir.path().join("none"), &LimitSettings::default()).is_err());
}

#[test]
fn a_file_that_is_deleted_after_it_was_listed_is_removed_and_not_refused() {
    let dir = tempfile::tempdir().expect("directory");
    for name in ["deleted.toml", "kept.toml"] {
        std::fs::write(dir.path().join(name), "name = \"one\"\n").expect("written");
    }
    std::os::unix::fs::symlink("nowhere", dir.path().join("link.toml")).expect("linked");
    let listed = paths_in(dir.path()).expect("listed");
    assert_eq!(listed.len(), 3);
    std::fs::remove_file(dir.path().join("deleted.toml")).expect("deleted");
    let files = load_listed(&listed, &LimitSettings::default());
    let shown: Vec<_> = files
        .iter()
        .map(|file| (file.path.file_name(), file.result.is_ok()))
        .collect();
    let kept = (Some("kept.toml".as_ref()), true);
    let link = (Some("link.toml".as_ref()), false);
    assert_eq!(shown, [kept, link], "what leads nowhere is a mistake");
}

#[test]
fn a_plugin_that_no_job_file_names_is_a_job_by_hand() {
    let dir = tempfile::tempdir().expect("directory");
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("written");
    };
    write("a.toml", "name = \"nightly\"\nplugin = \"sync\"\n");
    write("b.toml", "name = \"broken\"\ncorn = 1\n");
    write("Cargo.toml", "[package]\nname = \"sync\"\n");
    let caps = LimitSettings::default();
    let mut files = load_directory(dir.path(), &caps).expect("read");
    assert_eq!(files.len(), 2, "Cargo.toml is no job file");
    let plugin = |name: &str| (name.to_owned(), dir.path().join(format!("{name}.wasm")));
    let plugins = ["sync", "broken", "Not A Name", "fresh"].map(plugin);
    add_bare_plugins(&mut files, plugins, &caps);
    assert_eq!(files.len(), 3, "{files:#?}");
    let job = files[2].result.as_ref().expect("a job");
    assert_eq!(job.name.as_str(), "fresh");
    assert_eq!(job.definition.plugin.as_str(), "fresh");
    assert_eq!(job.definition.schedule.trigger, Trigger::Manual);
    assert!(is_bare_plugin(&files[2].path) && !is_bare_plugin(&files[0].path));
    assert_eq!(files[2].path, dir.path().join("fresh.wasm"));
}

#[test]
fn every_value_that_does_not_fit_is_named() {
    let text = "name = \"j\"\nplugin = \"p\"\ntimeout = \"10\"\noverlap = \"skp\"\n[retry]\nmax_attempts = \"two\"\n[allow]\nhttp = 1\n";
    let source = Source::from_text(Path::new("j.toml"), text);
    let file = from_source(&source, &LimitSettings::default());
    let faults = file.result.expect_err("refused").faults;
    let lines: Vec<_> = faults.iter().filter_map(|fault| fault.line).collect();
    assert_eq!(lines, [3, 4, 6, 8], "{faults:#?}");
}

#[test]
fn a_key_that_is_missing_is_told_alone() {
    let source = Source::from_text(Path::new("j.toml"), "timeout = \"10\"\n");
    let file = from_source(&source, &LimitSettings::default());
    let faults = file.result.expect_err("refused").faults;
    assert_eq!(
        faults.len(),
        1,
        "nothing is said of what was taken out: {faults:#?}"
    );
}
