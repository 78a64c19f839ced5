//! A disk of its own: full, and read-only. Needs the right to mount; says so where it is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::future::join_all;
use wasmcron_store::StoreError;
use wasmcron_store::embedded::engine::{Engine as _, Key};
use wasmcron_store::sqlite::{SqliteEngine, SqliteOptions};

use crate::support::*;

/// A small file system in memory, until it is dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    /// Mounts it; none where that is not permitted.
    fn mount(options: &str) -> Option<Disk> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "wasmcron-test"])
            .arg(folder.path());
        match mount.output() {
            Ok(output) if output.status.success() => Some(Disk(folder)),
            Ok(output) => {
                println!(
                    "skipped: cannot mount: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                None
            }
            Err(error) => {
                println!("skipped: cannot mount: {error}");
                None
            }
        }
    }

    fn remount(&self, options: &str) {
        let mut mount = Command::new("mount");
        let done = mount.args(["-o", options]).arg(self.0.path()).status();
        assert!(done.expect("mount").success());
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store.db")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Takes all room but what is given.
fn fill(folder: &Path, left: usize) -> PathBuf {
    let ballast = folder.join("ballast");
    let mut bytes = 0;
    for size in [1_048_576, 65_536, 4_096] {
        let chunk = vec![1; size];
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&ballast)
            .expect("ballast");
        while let Ok(written) = std::io::Write::write(&mut file, &chunk) {
            if written == 0 {
                break;
            }
            bytes += u64::try_from(written).unwrap();
        }
    }
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&ballast)
        .expect("ballast");
    file.set_len(bytes.saturating_sub(u64::try_from(left).unwrap()))
        .expect("room");
    ballast
}

#[test]
fn a_full_disk_costs_no_acknowledged_write_and_nothing_once_there_is_room() {
    on_runtime(async {
        let Some(disk) = Disk::mount("size=24m") else {
            return;
        };
        let engine = open(&disk.path()).await;
        let text = "x".repeat(10_000);
        for number in 0..20 {
            put(&engine, Key::new("", number, "kept"), &text)
                .await
                .unwrap();
        }
        let ballast = fill(disk.0.path(), 150_000);
        let mut kept = 20;
        let (mut full, mut next) = (0, 1_000);
        while full < 30 {
            let names: Vec<i64> = (next..next + 8).collect();
            next += 8;
            let writes = names
                .iter()
                .map(|number| put(&engine, Key::new("", *number, "more"), &text));
            for answer in join_all(writes).await {
                match answer {
                    Ok(()) => kept += 1,
                    Err(StoreError::Full { message, .. }) => {
                        assert!(message.contains("store.db"), "{message}");
                        full += 1;
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            assert!(next < 100_000, "never full");
        }
        println!("{kept} kept, {full} refused as full");
        assert_eq!(count(&engine).await, kept);
        let warnings = engine.warnings().await.unwrap().join("\n");
        assert!(warnings.contains("MiB are free where"), "{warnings}");
        assert!(warnings.contains("gone after a reboot"), "{warnings}");
        fs::remove_file(ballast).unwrap();
        put(&engine, Key::named("after"), &text).await.unwrap();
        assert_eq!(count(&engine).await, kept + 1);
        drop(engine);
        assert_eq!(count(&open(&disk.path()).await).await, kept + 1);
    });
}

#[test]
fn a_full_disk_has_no_room_for_a_new_store() {
    on_runtime(async {
        let Some(disk) = Disk::mount("size=1m") else {
            return;
        };
        fill(disk.0.path(), 8_192);
        let answer = SqliteEngine::open(SqliteOptions::new(disk.path())).await;
        assert!(matches!(answer, Err(StoreError::Full { .. })), "{answer:?}");
    });
}

#[test]
fn a_read_only_disk_is_refused() {
    on_runtime(async {
        let Some(disk) = Disk::mount("size=4m") else {
            return;
        };
        let refused = async || {
            disk.remount("remount,ro");
            let answer = SqliteEngine::open(SqliteOptions::new(disk.path())).await;
            disk.remount("remount,rw");
            match answer {
                Err(StoreError::Refused { message, .. }) => message,
                other => panic!("{other:?}"),
            }
        };
        let message = refused().await;
        assert!(message.contains("store.db cannot be opened"), "{message}");
        put(&open(&disk.path()).await, Key::named("a"), "x")
            .await
            .unwrap();
        let message = refused().await;
        assert!(message.contains("store.db"), "{message}");
        assert!(message.contains("this user may write"), "{message}");
        assert_eq!(count(&open(&disk.path()).await).await, 1);
    });
}
