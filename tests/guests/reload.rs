//! C70 to C73: plugins that change while the pod runs.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wasmcron_core::ids::Digest;
use wasmcron_runtime::{
    AttemptEnd, DirWatchConfig, PluginRegistry, PluginState, PluginStatus, RegistryConfig,
    StopReason,
};
use wasmcron_tests::guests::retagged;

use crate::harness::{Attempt, PATIENCE, hostile_bytes, runtime, summary};

struct Folder {
    dir: tempfile::TempDir,
    registry: Arc<PluginRegistry>,
}

/// A folder that is followed by events alone, so that every reload here is one that an event caused.
async fn folder(files: &[(&str, &[u8])]) -> Folder {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let watch = DirWatchConfig {
        poll: Duration::from_secs(3600),
        quiet: Duration::from_millis(200),
        ..DirWatchConfig::default()
    };
    let registry =
        PluginRegistry::start(runtime(), dir.path().to_owned(), RegistryConfig { watch }).unwrap();
    tokio::time::timeout(PATIENCE, registry.wait_loaded())
        .await
        .unwrap();
    Folder { dir, registry }
}

impl Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes beside and renames into place, as careful programs do.
    fn replace(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(".new"), bytes).unwrap();
        fs::rename(self.path(".new"), self.path(name)).unwrap();
    }

    fn active(&self, name: &str) -> Option<Digest> {
        self.registry
            .active(name)
            .map(|plugin| plugin.digest().clone())
    }

    fn status(&self, name: &str) -> PluginStatus {
        self.registry
            .statuses()
            .into_iter()
            .find(|status| status.name == name)
            .unwrap()
    }

    async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let mut changes = self.registry.changes();
        let wait = async {
            while !condition() {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| panic!("{what}: {:?}", self.registry.statuses()));
    }

    async fn serves(&self, bytes: &[u8]) {
        let wanted = Some(Digest::of(bytes));
        self.until("new bytes to serve", || self.active("job") == wanted)
            .await;
    }
}

fn version(tag: &str) -> Vec<u8> {
    retagged(&hostile_bytes(), tag)
}

#[tokio::test]
async fn c70_every_way_of_saving_is_seen_the_third_time_too() {
    let folder = folder(&[("job.wasm", &version("0"))]).await;
    folder.serves(&version("0")).await;
    for round in 0..3 {
        let bytes = version(&format!("rename over {round}"));
        folder.replace("job.wasm", &bytes);
        folder.serves(&bytes).await;
    }
    for round in 0..3 {
        let bytes = version(&format!("rename away {round}"));
        fs::rename(folder.path("job.wasm"), folder.path("job.wasm~")).unwrap();
        fs::write(folder.path("job.wasm"), &bytes).unwrap();
        folder.serves(&bytes).await;
    }
    for round in 0..3 {
        let bytes = version(&format!("in place {round}"));
        fs::write(folder.path("job.wasm"), &bytes).unwrap();
        folder.serves(&bytes).await;
    }
    assert_eq!(folder.registry.refusals(), 0);
}

#[tokio::test]
async fn c70_a_touch_reloads_nothing() {
    let folder = folder(&[("job.wasm", &hostile_bytes())]).await;
    let before = folder.registry.active("job").unwrap();
    let file = fs::File::options()
        .append(true)
        .open(folder.path("job.wasm"))
        .unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(5))
        .unwrap();
    drop(file);
    // What comes after it in time was seen after it.
    folder.replace("other.wasm", &version("other"));
    folder
        .until("the other plugin", || folder.active("other").is_some())
        .await;
    assert!(Arc::ptr_eq(
        &before,
        &folder.registry.active("job").unwrap()
    ));
    assert_eq!(folder.status("job").state, PluginState::Active);
}

#[tokio::test]
async fn c70_a_file_that_is_put_back_serves_again() {
    let folder = folder(&[("job.wasm", &version("1"))]).await;
    fs::remove_file(folder.path("job.wasm")).unwrap();
    folder
        .until("the plugin to retire", || folder.active("job").is_none())
        .await;
    assert_eq!(folder.status("job").state, PluginState::Retired);
    folder.replace("job.wasm", &version("1"));
    folder.serves(&version("1")).await;
}

#[tokio::test]
async fn c71_a_mounted_config_map_is_swapped_twice() {
    let folder = folder(&[]).await;
    let publish = |name: &str, bytes: &[u8]| {
        fs::create_dir(folder.path(name)).unwrap();
        fs::write(folder.path(name).join("job.wasm"), bytes).unwrap();
        symlink(name, folder.path("..tmp")).unwrap();
        fs::rename(folder.path("..tmp"), folder.path("..data")).unwrap();
    };
    publish("..2026_01", &version("1"));
    symlink("..data/job.wasm", folder.path("job.wasm")).unwrap();
    folder.serves(&version("1")).await;
    for (old, new) in [("1", "2"), ("2", "3")] {
        publish(&format!("..2026_0{new}"), &version(new));
        fs::remove_dir_all(folder.path(&format!("..2026_0{old}"))).unwrap();
        folder.serves(&version(new)).await;
    }
    assert_eq!(folder.registry.refusals(), 0);
}

#[tokio::test]
async fn c72_a_half_written_file_disturbs_nobody() {
    let folder = folder(&[("job.wasm", &version("1"))]).await;
    let bytes = version("2");
    let mut file = fs::File::create(folder.path("job.wasm")).unwrap();
    for piece in bytes.chunks(bytes.len() / 3 + 1) {
        file.write_all(piece).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(
            folder.active("job"),
            Some(Digest::of(&version("1"))),
            "a fire now runs version 1"
        );
    }
    drop(file);
    folder.serves(&bytes).await;
    assert_eq!(folder.registry.refusals(), 0);
}

#[tokio::test]
async fn c72_a_broken_file_keeps_the_old_version_and_is_told_once() {
    let folder = folder(&[("job.wasm", &version("1"))]).await;
    let half = &version("2")[..100_000];
    for _ in 0..3 {
        folder.replace("job.wasm", half);
        folder
            .until("the refusal", || folder.status("job").refused.is_some())
            .await;
        // Another plugin's load shows that the look after the last event is over.
        folder.replace("other.wasm", &version("other"));
        folder
            .until("the other", || folder.active("other").is_some())
            .await;
    }
    let status = folder.status("job");
    assert_eq!(status.state, PluginState::Kept);
    assert_eq!(status.active, Some(Digest::of(&version("1"))));
    assert_eq!(status.seen, Some(Digest::of(half)));
    assert_eq!(folder.registry.refusals(), 1);
    // Other bytes are tried again; the old ones are taken back as well.
    folder.replace("job.wasm", &version("3"));
    folder.serves(&version("3")).await;
    folder.replace("job.wasm", half);
    folder
        .until("the refusal", || {
            folder.status("job").state == PluginState::Kept
        })
        .await;
    folder.replace("job.wasm", &version("3"));
    folder
        .until("no refusal", || {
            folder.status("job").state == PluginState::Active
        })
        .await;
}

#[tokio::test]
async fn c72_a_broken_file_at_the_start_stops_no_other() {
    let folder = folder(&[("broken.wasm", b"nonsense"), ("job.wasm", &hostile_bytes())]).await;
    assert!(folder.active("job").is_some());
    let broken = folder.status("broken");
    assert_eq!(broken.state, PluginState::Refused);
    assert!(
        broken
            .refused
            .is_some_and(|why| why.contains("not WebAssembly"))
    );
    folder.replace("broken.wasm", &version("whole"));
    folder
        .until("it to serve", || folder.active("broken").is_some())
        .await;
}

#[tokio::test]
async fn c73_a_run_ends_on_the_version_it_began_with() {
    let folder = folder(&[("job.wasm", &version("1"))]).await;
    let plugin = folder.registry.active("job").unwrap();
    let digest = plugin.digest().clone();
    let attempt = Attempt::of(runtime(), plugin, &json!({ "do": "save-until-stop" }));
    let (host, control) = (attempt.host.clone(), attempt.control());
    let running = attempt.start();
    host.until(|seen| seen.saves.len() >= 50).await;

    folder.replace("job.wasm", &version("2"));
    folder.serves(&version("2")).await;
    assert_eq!(folder.status("job").draining, std::slice::from_ref(&digest));
    assert_eq!(
        folder
            .registry
            .by_digest(&digest)
            .map(|plugin| plugin.digest().clone()),
        Some(digest.clone())
    );
    let next = Attempt::of(
        runtime(),
        folder.registry.active("job").unwrap(),
        &json!({ "do": "ok" }),
    );
    assert_eq!(next.plugin.digest(), &Digest::of(&version("2")));
    assert_eq!(summary(&next.run().await.end), "ok");

    fs::remove_file(folder.path("job.wasm")).unwrap();
    folder
        .until("the plugin to go", || folder.active("job").is_none())
        .await;
    assert_eq!(folder.status("job").state, PluginState::Draining);
    let so_far = host.seen().saves.len();
    host.until(|seen| seen.saves.len() > so_far + 10).await;
    control.stop(StopReason::Reload);
    assert_eq!(running.await.unwrap().end, AttemptEnd::Yielded);
    let retired = async {
        while folder.status("job").state != PluginState::Retired {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, retired).await.unwrap();
    assert!(folder.registry.by_digest(&digest).is_none());
}

#[tokio::test]
async fn two_spellings_of_a_name_are_one_plugin_and_told() {
    let folder = folder(&[("my_job.wasm", &version("1"))]).await;
    assert_eq!(folder.active("my-job"), Some(Digest::of(&version("1"))));
    folder.replace("my-job.wasm", &version("2"));
    folder
        .until("the better spelling", || {
            folder.active("my-job") == Some(Digest::of(&version("2")))
        })
        .await;
    assert!(
        folder
            .status("my-job")
            .note
            .is_some_and(|note| note.contains("my_job.wasm"))
    );
}

#[tokio::test]
async fn dotfiles_and_other_files_are_left_alone() {
    let folder = folder(&[
        (".job.wasm", &hostile_bytes()),
        ("job.cwasm", b"x"),
        ("README", b"x"),
    ])
    .await;
    assert!(folder.registry.statuses().is_empty());
}
