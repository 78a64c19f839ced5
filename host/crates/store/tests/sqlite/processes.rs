//! Several processes over one file. This program starts itself again as the others.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmcron_core::ids::PodAddress;
use wasmcron_store::control::Wake;
use wasmcron_store::embedded::engine::{Engine as _, Key, Tx as _};

use crate::support::*;

/// Says to a child what it does, and where.
const ROLE: &str = "WASMCRON_SQLITE_ROLE";
const STORE: &str = "WASMCRON_SQLITE_STORE";
const NAME: &str = "WASMCRON_SQLITE_NAME";
/// Writers at once in a child.
const WRITERS: i64 = 8;
/// How often a child is killed.
const KILLS: usize = 36;

pub fn spawn(role: &str, path: &Path, name: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "processes::child",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .env(STORE, path)
        .env(NAME, name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("its output"));
    (child, lines)
}

/// What a child says after `word`, line by line, until it ends.
fn said(lines: BufReader<ChildStdout>, word: &str) -> impl Iterator<Item = String> {
    let word = format!("{word} ");
    // A line that the kill cut short has no end; what it said is not counted.
    let whole = lines.split(b'\n').map_while(Result::ok);
    whole.filter_map(move |line| {
        let line = String::from_utf8_lossy(&line).into_owned();
        // The test harness writes its own words on the first line.
        let at = line.find(&word)?;
        Some(line[at + word.len()..].to_owned())
    })
}

fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{words}");
    let _ = out.flush();
}

/// Not a test: what a child does. Without a role it is nobody's child.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let path = std::path::PathBuf::from(std::env::var(STORE).expect("a store"));
    let name = std::env::var(NAME).expect("a name");
    on_runtime(async {
        match role.as_str() {
            "count" => write_and_tell(&path, &name).await,
            "listen" => listen_and_tell(&path).await,
            "write" => write_for_a_time(&path, &name).await,
            other => panic!("no role {other}"),
        }
    });
}

/// Writes numbers for ever, and says each that was acknowledged.
async fn write_and_tell(path: &Path, name: &str) {
    let engine = Arc::new(open(path).await);
    say("open now");
    let writers = (0..WRITERS).map(|writer| {
        let (engine, name) = (engine.clone(), name.to_owned());
        tokio::spawn(async move {
            for number in 0.. {
                let key = Key::new("", writer * 1_000_000 + number, &name);
                put(&engine, key.clone(), "acknowledged")
                    .await
                    .expect("a write");
                say(&format!("ack {} {}", key.order, key.name));
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
}

/// Killed at any point, again and again: what was acknowledged is there, and nothing is broken.
#[test]
fn what_was_acknowledged_outlives_sigkill() {
    on_runtime(async {
        let (_folder, path) = folder();
        let (mut acknowledged, mut working) = (BTreeSet::new(), 0);
        for kill in 0..KILLS {
            let (mut child, lines) = spawn("count", &path, &format!("k{kill}"));
            // From the first instant, when it makes the file, to well within its work.
            let wait = Duration::from_millis(fastrand::u64(0..180));
            let killer = std::thread::spawn(move || {
                std::thread::sleep(wait);
                child.kill().expect("kill");
                child.wait().expect("its end");
            });
            let before = acknowledged.len();
            acknowledged.extend(said(lines, "ack"));
            killer.join().expect("the killer");
            working += usize::from(acknowledged.len() > before);
        }
        println!(
            "{KILLS} killed, {working} at work, {} acknowledged",
            acknowledged.len()
        );
        assert!(working > KILLS / 4, "{working} were at work");
        let engine = open(&path).await;
        let rows = engine.read("all", |tx| {
            tx.scan::<Note>(
                &wasmcron_store::embedded::engine::Range::all(""),
                usize::MAX,
            )
        });
        let kept: BTreeSet<String> = rows
            .await
            .expect("all rows")
            .into_iter()
            .map(|(key, _)| format!("{} {}", key.order, key.name))
            .collect();
        let lost: Vec<_> = acknowledged.difference(&kept).collect();
        assert!(lost.is_empty(), "{} lost: {:?}", lost.len(), lost.first());
        let hand = rusqlite::Connection::open(&path).expect("the file");
        let found: String = hand
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .expect("a check");
        assert_eq!(found, "ok");
    });
}

/// Killed while it makes the file: the next one finishes that.
#[test]
fn a_file_that_is_half_made_is_taken_up() {
    on_runtime(async {
        let (mut missing, mut made) = (0, 0);
        for _ in 0..30 {
            let (_folder, path) = folder();
            let (mut child, lines) = spawn("count", &path, "a");
            // Starting the program takes a few of them.
            std::thread::sleep(Duration::from_micros(fastrand::u64(0..12_000)));
            child.kill().expect("kill");
            child.wait().expect("its end");
            match std::fs::metadata(&path) {
                Ok(_) => made += 1,
                Err(_) => missing += 1,
            }
            let acknowledged = said(lines, "ack").count();
            let engine = open(&path).await;
            put(&engine, Key::named("after"), "x")
                .await
                .expect("a write");
            assert!(count(&engine).await > u64::try_from(acknowledged).expect("few"));
        }
        println!("killed before the file was there: {missing}, after: {made}");
    });
}

fn nanos() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_nanos()
}

/// Says when it hears of each wake-up, until it is killed.
async fn listen_and_tell(path: &Path) {
    let engine = open(path).await;
    let mut wakes = engine.wakes();
    say("open now");
    while let Ok(wake) = wakes.recv().await {
        if let Wake::Left { pod } = wake {
            say(&format!("heard {} {pod}", nanos()));
        }
    }
}

/// Processor time that a process has used.
fn busy(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("its stat");
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .expect("fields")
        .split(' ')
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // The kernel counts in hundredths of a second on every platform of Linux.
    Duration::from_millis(ticks * 10)
}

/// How soon another process hears, and what waiting costs it.
#[test]
fn another_process_hears_within_50_ms() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        let (mut child, mut lines) = spawn("listen", &path, "");
        let mut line = String::new();
        while !line.contains("open now") {
            line.clear();
            lines.read_line(&mut line).expect("a line");
        }
        let mut heard = said(lines, "heard");
        let mut took = Vec::new();
        for number in 0..100 {
            let pod: PodAddress = format!("pod-{number}").parse().expect("an address");
            let told = engine.write("tell", move |tx| {
                tx.wake(Wake::Left { pod });
                Ok(())
            });
            told.await.expect("told");
            let began = nanos();
            let answer = heard.next().expect("an answer");
            let (at, pod) = answer.split_once(' ').expect("two words");
            assert_eq!(pod, format!("pod-{number}"));
            took.push(
                at.parse::<u128>()
                    .expect("nanoseconds")
                    .saturating_sub(began)
                    / 1_000,
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        took.sort_unstable();
        println!(
            "heard after the commit: median {} µs, 95 of 100 within {} µs, at most {} µs",
            took[50], took[95], took[99]
        );
        // The machine that tests may be busy; the slow look would take half a second in the middle.
        assert!(took[50] < 50_000, "{took:?}");
        if std::env::var("WASMCRON_SQLITE_IDLE").is_ok() {
            let (began, before) = (Instant::now(), busy(child.id()));
            tokio::time::sleep(Duration::from_secs(20)).await;
            let used = busy(child.id()) - before;
            println!(
                "waiting used {used:?} of processor time in {:?}",
                began.elapsed()
            );
        }
        child.kill().expect("kill");
        child.wait().expect("its end");
    });
}

/// Writes for a second, and says how much it wrote.
async fn write_for_a_time(path: &Path, name: &str) {
    let engine = Arc::new(open(path).await);
    let until = Instant::now() + Duration::from_secs(1);
    let writers = (0..WRITERS).map(|writer| {
        let (engine, name) = (engine.clone(), name.to_owned());
        tokio::spawn(async move {
            let (mut wrote, mut longest) = (0, Duration::ZERO);
            while Instant::now() < until {
                let began = Instant::now();
                let key = Key::new("", writer * 1_000_000 + wrote, &name);
                put(&engine, key, "x").await.expect("a write");
                longest = longest.max(began.elapsed());
                wrote += 1;
            }
            (wrote, longest)
        })
    });
    let writers: Vec<_> = writers.collect();
    let (mut all, mut most) = (0, Duration::ZERO);
    for writer in writers {
        let (wrote, longest) = writer.await.expect("a writer");
        all += wrote;
        most = most.max(longest);
    }
    say(&format!("wrote {all} {}", most.as_millis()));
}

/// Four processes write as fast as they can: each gets its turn, and all of it is there.
#[test]
fn processes_that_write_take_turns() {
    on_runtime(async {
        let (_folder, path) = folder();
        drop(open(&path).await);
        let children: Vec<_> = (0..4)
            .map(|number| spawn("write", &path, &format!("w{number}")))
            .collect();
        let mut all = 0;
        for (mut child, lines) in children {
            let answers: Vec<String> = said(lines, "wrote").collect();
            let answer = answers.first().expect("an answer");
            let (wrote, longest) = answer.split_once(' ').expect("two words");
            println!("wrote {wrote}, the longest wait was {longest} ms");
            let wrote: u64 = wrote.parse().expect("a number");
            assert!(wrote > 0, "a process never had its turn");
            all += wrote;
            assert!(child.wait().expect("its end").success());
        }
        assert_eq!(count(&open(&path).await).await, all);
    });
}
