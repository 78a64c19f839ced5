//! Bytes that are no text, in every key that is read as entries (C39): they leave for the dead letters
//! as they were found, the first time they are met, and what stands behind them is served.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use wasmcron_core::ids::{JobName, PodRef};
use wasmcron_store::leadership::TermRef;
use wasmcron_store::recovery::{EntryId, Register};
use wasmcron_tests::conformance::{World, keep};

use crate::harness::{RedisHarness, on_runtime};

/// An id or a queue entry; without the first two bytes it would still be none.
const JUNK: &[u8] = b"\xff\xfejunk|1";
/// More than one take brings.
const MANY: usize = 300;

struct Scene {
    world: World,
    harness: Arc<RedisHarness>,
    hand: MultiplexedConnection,
    pod: PodRef,
    term: TermRef,
    job: JobName,
}

impl Scene {
    async fn new() -> Scene {
        let harness = Arc::new(RedisHarness::start().await);
        let hand = harness.hand().await;
        let world = World::new(harness.clone()).await;
        let pod = world.pod("a").await;
        let term = world.lead(&pod).await;
        let job = world.job(&term, "j").await;
        Scene {
            world,
            harness,
            hand,
            pod,
            term,
            job,
        }
    }

    /// What the dead letters say: register, id and entry.
    async fn dead_letters(&mut self) -> Vec<(String, Vec<u8>, Vec<u8>)> {
        let key = self.harness.keys.dead_letters();
        let found: StreamRangeReply = self.hand.xrange_all(key).await.expect("xrange");
        let field = |map: &redis::streams::StreamId, name| map.get(name).expect("a field");
        let letters = found.ids.iter();
        letters
            .map(|one| {
                let register: Vec<u8> = field(one, "register");
                (
                    String::from_utf8(register).expect("a word"),
                    field(one, "id"),
                    field(one, "entry"),
                )
            })
            .collect()
    }

    /// Buries what a look found, and says what that was.
    async fn bury(&self, register: Register, corrupt: &[EntryId]) {
        assert_eq!(corrupt, [EntryId::from(JUNK.to_vec())]);
        let store = &self.world.store;
        for expected in [true, false] {
            let buried = store.bury(&self.term, register, &corrupt[0], keep()).await;
            assert_eq!(buried.expect("bury"), expected, "once");
        }
    }

    /// The next firing executes, and nothing more is met.
    async fn goes_on(&self, seconds: u64) {
        let world = &self.world;
        let running = world
            .running(&self.term, &self.job, seconds, &self.pod)
            .await;
        world
            .store
            .finish(&running.success())
            .await
            .expect("finish");
        let pages = [
            world
                .store
                .scheduled(None)
                .await
                .expect("scheduled")
                .corrupt,
            world.store.running(None).await.expect("running").corrupt,
            world.due(10).await.corrupt,
        ];
        assert_eq!(pages.concat(), []);
    }
}

fn case(test: impl AsyncFnOnce(Scene)) {
    on_runtime(async { test(Scene::new().await).await });
}

#[test]
fn c39_bytes_in_a_queue_leave_with_one_take() {
    case(async |mut scene| {
        let keys = [
            scene.harness.keys.tasks(&scene.pod.address),
            scene.harness.keys.claiming(&scene.pod.address),
        ];
        for key in &keys {
            let () = scene.hand.rpush(key, JUNK).await.expect("rpush");
        }
        // The blocking read meets it, and is answered.
        let mut consumer = scene.world.store.consumer(&scene.pod);
        let taken = consumer.take(Duration::from_secs(1), 1).await;
        assert_eq!(taken.expect("take"), []);
        let left: usize = scene.hand.llen(&keys[1]).await.expect("llen");
        assert_eq!(left, 0, "the same bytes, wherever they stood");
        let pod = scene.pod.address.as_str().as_bytes().to_vec();
        let letter = ("tasks".to_owned(), pod, JUNK.to_vec());
        assert_eq!(scene.dead_letters().await, std::slice::from_ref(&letter));

        let () = scene.hand.rpush(&keys[1], JUNK).await.expect("rpush");
        let claiming = scene.world.store.claiming(&scene.pod).await;
        assert_eq!(claiming.expect("claiming"), []);
        let left: usize = scene.hand.llen(&keys[1]).await.expect("llen");
        assert_eq!(left, 0);
        assert_eq!(scene.dead_letters().await, [letter.clone(), letter]);
        scene.goes_on(1).await;
    });
}

#[test]
fn c39_many_bytes_in_a_queue_hold_nobody_up() {
    case(async |mut scene| {
        let tasks = scene.harness.keys.tasks(&scene.pod.address);
        for at in 0..MANY {
            let entry = [JUNK, at.to_string().as_bytes()].concat();
            let () = scene.hand.rpush(&tasks, entry).await.expect("rpush");
        }
        let world = &scene.world;
        let run = world.fire(&scene.term, &scene.job, 1, &scene.pod).await;
        let mut consumer = world.store.consumer(&scene.pod);
        let began = Instant::now();
        let taken = loop {
            let taken = consumer.take(Duration::from_secs(2), 32).await;
            let taken = taken.expect("a take of bytes is no error, which would be waited for");
            if !taken.is_empty() {
                break taken;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it is held up");
        };
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].run, run);
        let counts = world.store.counts().await.expect("counts");
        assert_eq!(counts.dead_letters, MANY as u64);
    });
}

#[test]
fn c39_bytes_in_a_register_are_buried() {
    case(async |mut scene| {
        let keys = &scene.harness.keys;
        let (scheduled, running) = (keys.scheduled(), keys.running());
        for key in [&scheduled, &running] {
            let () = scene.hand.hset(key, JUNK, JUNK).await.expect("hset");
        }
        let store = scene.world.store.clone();
        let page = store.scheduled(None).await.expect("scheduled");
        scene.bury(Register::Scheduled, &page.corrupt).await;
        let page = store.running(None).await.expect("running");
        scene.bury(Register::Running, &page.corrupt).await;
        for key in [&scheduled, &running] {
            let left: usize = scene.hand.hlen(key).await.expect("hlen");
            assert_eq!(left, 0, "{key}");
        }
        let letter = |register: &str| (register.to_owned(), JUNK.to_vec(), JUNK.to_vec());
        let expected = [letter("scheduled"), letter("running")];
        assert_eq!(scene.dead_letters().await, expected);
        scene.goes_on(1).await;
    });
}

#[test]
fn c39_bytes_among_the_delayed_are_buried() {
    case(async |mut scene| {
        let (delayed, due) = (scene.harness.keys.delayed(), scene.harness.keys.due());
        // With an entry, and as a due time alone.
        for entry in [JUNK, b""] {
            if !entry.is_empty() {
                let () = scene.hand.hset(&delayed, JUNK, entry).await.expect("hset");
            }
            let () = scene.hand.zadd(&due, JUNK, 1).await.expect("zadd");
            let found = scene.world.due(10).await;
            scene.bury(Register::Delayed, &found.corrupt).await;
            let left: usize = scene.hand.hlen(&delayed).await.expect("hlen");
            let due: usize = scene.hand.zcard(&due).await.expect("zcard");
            assert_eq!((left, due), (0, 0));
        }
        let letter = |entry: &[u8]| ("delayed".to_owned(), JUNK.to_vec(), entry.to_vec());
        assert_eq!(scene.dead_letters().await, [letter(JUNK), letter(b"")]);
        scene.goes_on(1).await;
    });
}

/// Bytes that would pass for text with signs in their place: such a task could never be claimed.
#[test]
fn c39_an_entry_with_bytes_in_its_parameters_does_not_decode() {
    case(async |mut scene| {
        let world = &scene.world;
        let run = world.fire(&scene.term, &scene.job, 1, &scene.pod).await;
        let key = scene.harness.keys.scheduled();
        let entry: Vec<u8> = scene.hand.hget(&key, run.as_str()).await.expect("hget");
        let at = entry.iter().rposition(|byte| *byte == b'"').expect("JSON");
        let broken = [&entry[..at], b"\xff", &entry[at..]].concat();
        let () = scene
            .hand
            .hset(&key, run.as_str(), &broken)
            .await
            .expect("hset");
        let page = world.store.scheduled(None).await.expect("scheduled");
        assert_eq!(page.corrupt, [(&run).into()]);
        let buried = world
            .store
            .bury(&scene.term, Register::Scheduled, &page.corrupt[0], keep())
            .await;
        assert!(buried.expect("bury"));
        let letters = scene.dead_letters().await;
        assert_eq!(letters[0].2, broken);
        // What is left of it in the queue is stale.
        let taken = scene.world.take_one(&scene.pod).await;
        let claim = scene.world.claim_of(&scene.pod, &taken);
        let claimed = scene.world.store.claim(&claim).await.expect("claim");
        assert_eq!(claimed, wasmcron_store::queue::Claimed::Stale);
        scene.goes_on(2).await;
    });
}
