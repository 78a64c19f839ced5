//! Files that are accepted, and files that are refused and stay as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use rusqlite::Connection;
use wasmcron_store::StoreError;
use wasmcron_store::embedded::engine::{Engine as _, Key};
use wasmcron_store::sqlite::{LAYOUT, SqliteEngine, SqliteOptions};

use crate::support::*;

/// Why a path is refused; it is unchanged then.
async fn refused(path: &Path) -> String {
    let before = fs::read(path).ok();
    let answer = SqliteEngine::open(SqliteOptions::new(path)).await;
    assert_eq!(fs::read(path).ok(), before, "a refused file was changed");
    match answer {
        Err(StoreError::Refused {
            verb: "open",
            message,
        }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn new_files_are_for_their_user_alone() {
    on_runtime(async {
        let (folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("a"), "x").await.unwrap();
        let mut names = Vec::new();
        for file in fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?}", file.path());
            names.push(file.file_name().into_string().unwrap());
        }
        names.sort();
        assert_eq!(
            names,
            ["store.db", "store.db-shm", "store.db-wake", "store.db-wal"]
        );
        assert!(!engine.warnings().await.unwrap().join("").contains("mode"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let warnings = engine.warnings().await.unwrap().join("\n");
        assert!(warnings.contains("mode 644"), "{warnings}");
    });
}

#[test]
fn what_was_kept_is_there_after_opening_again() {
    on_runtime(async {
        let (_folder, path) = folder();
        for round in 0..3 {
            let engine = open(&path).await;
            assert_eq!(count(&engine).await, round);
            put(&engine, Key::named(&round.to_string()), "x")
                .await
                .unwrap();
        }
    });
}

/// Several processes start at once, and none of them finds a file.
#[test]
fn several_may_make_the_file_at_once() {
    on_runtime(async {
        for _ in 0..5 {
            let (_folder, path) = folder();
            let engines = join_all((0..6).map(|_| open(&path))).await;
            let writes = engines
                .iter()
                .zip(0..)
                .map(|(engine, number)| put(engine, Key::new("", number, ""), "x"));
            assert!(join_all(writes).await.iter().all(Result::is_ok));
            assert_eq!(count(&engines[0]).await, 6);
        }
    });
}

/// Whoever makes an empty file wishes for its owner and mode, as with SQLite itself. One beside the log of a
/// store was emptied, and stays as it is together with the log.
#[test]
fn an_empty_file_is_a_new_one_unless_a_log_lies_beside_it() {
    on_runtime(async {
        let (_folder, path) = folder();
        fs::write(&path, b"").unwrap();
        put(&open(&path).await, Key::named("a"), "x").await.unwrap();
        fs::write(&path, b"").unwrap();
        let log = path.with_extension("db-wal");
        fs::write(&log, b"what was acknowledged last").unwrap();
        let message = refused(&path).await;
        assert!(
            message.contains("store.db is damaged: found an empty file beside a log"),
            "{message}"
        );
        assert_eq!(fs::read(&log).unwrap(), b"what was acknowledged last");
    });
}

#[test]
fn a_newer_layout_is_refused() {
    on_runtime(async {
        let (_folder, path) = folder();
        drop(open(&path).await);
        let hand = Connection::open(&path).unwrap();
        hand.pragma_update(None, "user_version", LAYOUT + 1)
            .unwrap();
        drop(hand);
        let message = refused(&path).await;
        let wanted = format!(
            "store.db has layout {}; accepted: layout {LAYOUT}",
            LAYOUT + 1
        );
        assert!(message.contains(&wanted), "{message}");
    });
}

#[test]
fn a_database_of_another_program_is_refused() {
    on_runtime(async {
        let (_folder, path) = folder();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE theirs (x)").unwrap();
        drop(other);
        let message = refused(&path).await;
        assert!(
            message.contains("store.db is a database of another program"),
            "{message}"
        );
        assert!(message.contains("1 tables"), "{message}");
    });
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    on_runtime(async {
        let (_folder, path) = folder();
        fs::write(&path, "minutes of the last meeting\n".repeat(100)).unwrap();
        let message = refused(&path).await;
        assert!(
            message.contains("store.db is no SQLite database: found 2800 bytes"),
            "{message}"
        );
        assert!(message.contains("nothing was overwritten"), "{message}");
    });
}

#[test]
fn a_damaged_file_is_refused_with_advice() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        for number in 0..200 {
            put(&engine, Key::new("", number, ""), &"x".repeat(1_000))
                .await
                .unwrap();
        }
        drop(engine);
        let good = fs::read(&path).unwrap();
        let mut torn = good.clone();
        let middle = torn.len() / 2 / 4_096 * 4_096;
        torn[middle..middle + 4_096].fill(0xA5);
        fs::write(&path, &torn).unwrap();
        let message = refused(&path).await;
        assert!(message.contains("store.db is damaged: found "), "{message}");
        assert!(message.contains(".recover"), "{message}");
        // Cut in the middle, as by a copy that ran out of room.
        fs::write(&path, &good[..good.len() / 2]).unwrap();
        let message = refused(&path).await;
        assert!(message.contains("store.db is damaged"), "{message}");
        fs::write(&path, &good).unwrap();
        assert_eq!(count(&open(&path).await).await, 200);
    });
}

#[test]
fn a_locked_file_is_not_available() {
    on_runtime(async {
        let (_folder, path) = folder();
        drop(open(&path).await);
        let other = Connection::open(&path).unwrap();
        other
            .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
            .unwrap();
        let options = SqliteOptions {
            response_timeout: Duration::from_millis(200),
            ..SqliteOptions::new(&path)
        };
        let answer = SqliteEngine::open(options).await;
        let Err(StoreError::Unavailable { message, .. }) = &answer else {
            panic!("{answer:?}");
        };
        assert!(
            message.contains("store.db was locked by another process for 200ms"),
            "{message}"
        );
        drop(other);
        drop(open(&path).await);
    });
}

/// Opening a pipe would wait for ever, and a device would be asked for what it is not.
#[test]
fn what_is_no_file_is_refused_by_its_kind() {
    on_runtime(async {
        let (folder, _) = folder();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, kind) in [
            (Path::new("/dev/null"), "a device"),
            (&pipe, "a pipe"),
            (&socket, "a socket"),
        ] {
            let answer = SqliteEngine::open(SqliteOptions::new(path)).await;
            let Err(StoreError::Refused { message, .. }) = answer else {
                panic!("{answer:?}")
            };
            assert!(
                message.contains(&format!("is {kind}; accepted: a file")),
                "{message}"
            );
        }
    });
}

#[test]
fn paths_that_cannot_be_a_file_are_refused() {
    on_runtime(async {
        let (folder, _) = folder();
        let message = refused(folder.path()).await;
        assert!(
            message.contains("is a folder; accepted: a file"),
            "{message}"
        );
        let message = refused(&folder.path().join("none/store.db")).await;
        assert!(
            message.contains("none/store.db cannot be opened"),
            "{message}"
        );
        assert!(message.contains("folder that exists"), "{message}");
    });
}

/// A link and its target are one store.
#[test]
fn a_link_leads_to_the_file() {
    on_runtime(async {
        let (folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("a"), "x").await.unwrap();
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let other = open(&link).await;
        assert_eq!(count(&other).await, 1);
        assert!(!folder.path().join("link.db-wal").exists());
    });
}

/// Pods that wrote into a file without a name, beside pods that made a new one, would be two fleets.
#[test]
fn a_file_that_was_removed_or_replaced_takes_no_writes() {
    on_runtime(async {
        let (folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("a"), "x").await.unwrap();
        let aside = folder.path().join("aside.db");
        fs::rename(&path, &aside).unwrap();
        let refused = async || match put(&engine, Key::named("b"), "x").await {
            Err(StoreError::Refused { message, .. }) => message,
            other => panic!("{other:?}"),
        };
        assert!(refused().await.contains("store.db was removed or replaced"));
        fs::write(&path, b"").unwrap();
        assert!(refused().await.contains("store.db was removed or replaced"));
        fs::rename(&aside, &path).unwrap();
        put(&engine, Key::named("b"), "x").await.unwrap();
    });
}

/// Processes that start later would make another log or another index of it, and know nothing of what
/// stands in the old one. As long as none has, what was acknowledged is brought into the file.
#[test]
fn a_log_or_index_that_was_removed_is_noticed_and_nothing_is_lost() {
    for ending in ["-wal", "-shm"] {
        on_runtime(async {
            let (folder, path) = folder();
            let engine = open(&path).await;
            put(&engine, Key::named("a"), "x").await.unwrap();
            let side = PathBuf::from(format!("{}{ending}", path.display()));
            fs::remove_file(&side).unwrap();
            for _ in 0..2 {
                let answer = put(&engine, Key::named("b"), "x").await;
                let Err(StoreError::Refused { message, .. }) = answer else {
                    panic!("{ending}: {answer:?}");
                };
                let wanted = format!("store.db{ending} was removed or replaced");
                assert!(message.contains(&wanted), "{message}");
                assert!(message.contains("moved into the file"), "{message}");
            }
            // What a kill would leave. Another process copies: closing the file in this one would give up
            // the locks that the engine holds.
            let copy = folder.path().join("copy.db");
            let copied = std::process::Command::new("cp")
                .arg(&path)
                .arg(&copy)
                .status();
            assert!(copied.unwrap().success());
            assert_eq!(count(&open(&copy).await).await, 1, "{ending}");
            drop(engine);
            assert_eq!(count(&open(&path).await).await, 1, "{ending}");
        });
    }
}

/// Another file in their place may be used by another process: it is left alone.
#[test]
fn a_log_that_was_replaced_takes_no_writes() {
    on_runtime(async {
        let (folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("a"), "x").await.unwrap();
        let log = path.with_extension("db-wal");
        let aside = folder.path().join("aside");
        fs::rename(&log, &aside).unwrap();
        fs::write(&log, b"").unwrap();
        let answer = put(&engine, Key::named("b"), "x").await;
        let Err(StoreError::Refused { message, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(
            message.contains("store.db-wal was removed or replaced"),
            "{message}"
        );
        assert!(message.contains("SIGTERM"), "{message}");
        fs::rename(&aside, &log).unwrap();
        put(&engine, Key::named("b"), "x").await.unwrap();
    });
}

/// Somebody truncates the file of running pods: that is damage, and the log, which may be all that is left, is
/// not thrown away.
#[test]
fn a_file_that_was_emptied_takes_no_writes() {
    on_runtime(async {
        let (_folder, path) = folder();
        let engine = open(&path).await;
        put(&engine, Key::named("a"), "x").await.unwrap();
        let emptied = std::process::Command::new("truncate")
            .args(["-s", "0"])
            .arg(&path)
            .status();
        assert!(emptied.unwrap().success());
        let answer = put(&engine, Key::named("b"), "x").await;
        let Err(StoreError::Refused { message, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(
            message.contains("store.db is damaged: found an empty file"),
            "{message}"
        );
        drop(engine);
        let log = fs::read(path.with_extension("db-wal")).unwrap();
        assert!(!log.is_empty(), "the log was thrown away");
        assert!(refused(&path).await.contains("an empty file beside a log"));
        assert_eq!(fs::read(path.with_extension("db-wal")).unwrap(), log);
    });
}

/// What a crash left in the log beside a damaged file stays there for whoever repairs it.
#[test]
fn a_damaged_file_with_a_log_is_left_alone() {
    on_runtime(async {
        let (folder, path) = folder();
        let engine = open(&path).await;
        for number in 0..400 {
            put(&engine, Key::new("", number, ""), &"x".repeat(4_000))
                .await
                .unwrap();
        }
        // As a crash leaves them. A process of its own copies: closing the file in this one would give
        // up the locks that the engine holds.
        let copy = folder.path().join("copy.db");
        for ending in ["", "-wal"] {
            let (from, to) = (
                format!("{}{ending}", path.display()),
                format!("{}{ending}", copy.display()),
            );
            assert!(
                std::process::Command::new("cp")
                    .args([from, to])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let log = folder.path().join("copy.db-wal");
        let (mut torn, logged) = (fs::read(&copy).unwrap(), fs::read(&log).unwrap());
        assert!(!logged.is_empty());
        let pages = torn.len() / 4_096;
        assert!(pages > 20, "{pages}");
        torn[4_096 * 10..4_096 * (pages - 1)].fill(0xA5);
        fs::write(&copy, &torn).unwrap();
        let message = refused(&copy).await;
        assert!(message.contains("copy.db is damaged"), "{message}");
        assert_eq!(fs::read(&log).unwrap(), logged);
    });
}
