//! A script that meets a key of the wrong type stops half-way and is not rolled back (C65). Whatever
//! key it is, once that is mended a repeat of the verb mends the rest, and the run has its one life.

use std::sync::Arc;

use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use wasmcron_core::ids::{JobName, PodRef, RunId};
use wasmcron_core::run::RunState;
use wasmcron_store::StoreError;
use wasmcron_store::leadership::TermRef;
use wasmcron_store::queue::{Hold, Taken};
use wasmcron_store::recovery::{Loss, Seen};
use wasmcron_store::runs::AttemptRef;
use wasmcron_tests::conformance::{LONG, Running, World, keep};
use wasmcron_tests::redis_server::RedisServer;

use crate::harness::{RedisHarness, on_runtime};

/// A verb and the state it begins from.
#[derive(Clone, Copy, Debug)]
enum Act {
    Publish,
    Claim,
    Skip,
    Park,
    HandBackTask,
    HandBackAttempt,
    FinishForGood,
    FinishForNow,
    RepublishTask,
    RepublishAttempt,
    LoseTask,
    LoseAttempt,
    Promote,
    Submit,
    CancelTask,
    Save,
}

/// Two pods, of which the second leads, and a run of a job.
struct Scene {
    pod: PodRef,
    leader: PodRef,
    term: TermRef,
    job: JobName,
    run: RunId,
    taken: Option<Taken>,
    running: Option<Running>,
    manual: wasmcron_store::schedule::Submission,
    claim: Option<wasmcron_store::queue::Claim>,
}

impl Scene {
    async fn new(world: &World, act: Act) -> Scene {
        let (pod, leader) = (world.pod("a").await, world.pod("b").await);
        let term = world.lead(&leader).await;
        let job = world.job(&term, "j").await;
        let manual = world.manual(&job);
        let mut scene = Scene {
            run: world.run(&job, 1),
            pod,
            leader,
            term,
            job,
            taken: None,
            running: None,
            manual,
            claim: None,
        };
        match act {
            Act::Publish => {}
            Act::Submit => scene.run = scene.manual.task.run.clone(),
            Act::Promote => scene.run = world.submitted(&scene.manual).await,
            Act::Claim
            | Act::Skip
            | Act::Park
            | Act::HandBackTask
            | Act::RepublishTask
            | Act::LoseTask
            | Act::CancelTask => {
                scene.schedule(world).await;
            }
            Act::HandBackAttempt
            | Act::FinishForGood
            | Act::FinishForNow
            | Act::RepublishAttempt
            | Act::LoseAttempt
            | Act::Save => {
                scene.schedule(world).await;
                let claim = scene.claim.clone().expect("it was made");
                let running = world.claimed(claim).await;
                running.save(world, 1, b"one").await;
                if matches!(act, Act::RepublishAttempt | Act::LoseAttempt) {
                    world.expire(&running).await;
                }
                scene.running = Some(running);
            }
        }
        scene
    }

    async fn schedule(&mut self, world: &World) {
        world.fire(&self.term, &self.job, 1, &self.pod).await;
        let taken = world.take_one(&self.pod).await;
        self.claim = Some(world.claim_of(&self.pod, &taken));
        self.taken = Some(taken);
    }

    /// Does it, and answers the answer.
    async fn act(&self, world: &World, act: Act) -> Result<String, StoreError> {
        match act {
            Act::Claim
            | Act::Skip
            | Act::Park
            | Act::HandBackTask
            | Act::RepublishTask
            | Act::LoseTask => self.act_on_task(world, act).await,
            Act::HandBackAttempt
            | Act::FinishForGood
            | Act::FinishForNow
            | Act::RepublishAttempt
            | Act::LoseAttempt
            | Act::Save => self.act_on_attempt(world, act).await,
            Act::Publish => {
                let firing = world.firing(&self.job, 1, &self.pod);
                said(world.store.publish(&self.term, &[firing]).await)
            }
            Act::Promote => {
                let moves = [(self.run.clone(), self.pod.address.clone())];
                said(world.store.promote(&self.term, &moves).await)
            }
            Act::Submit => said(world.store.submit(&self.manual).await),
            Act::CancelTask => said(world.store.cancel(&self.run, "ann", keep()).await),
        }
    }

    async fn act_on_task(&self, world: &World, act: Act) -> Result<String, StoreError> {
        let store = &world.store;
        let taken = self.taken.as_ref().expect("a task was taken");
        let seen = Seen::Scheduled(taken.delivery);
        match act {
            Act::Claim => said(store.claim(self.claim.as_ref().expect("a claim")).await),
            Act::Skip => said(store.skip(&self.pod, taken, "why").await),
            Act::Park => said(store.park(&self.pod, taken, 1).await),
            Act::HandBackTask => {
                let mut back = world.back(&self.pod, &self.run, Hold::Delivery(taken.delivery));
                back.avoid = false;
                said(store.hand_back(&back).await)
            }
            Act::RepublishTask => self.republish(world, seen).await,
            _ => self.lose(world, seen).await,
        }
    }

    async fn act_on_attempt(&self, world: &World, act: Act) -> Result<String, StoreError> {
        let store = &world.store;
        let running = self.running.as_ref().expect("an attempt began");
        let fence = running.at.fence;
        match act {
            Act::HandBackAttempt => {
                let hold = Hold::Fence {
                    fence,
                    counted: true,
                };
                let mut back = world.back(&self.pod, &self.run, hold);
                back.avoid = false;
                said(store.hand_back(&back).await)
            }
            Act::FinishForGood => said(store.finish(&running.success()).await),
            Act::FinishForNow => said(
                store
                    .finish(&running.retry(std::time::Duration::ZERO))
                    .await,
            ),
            Act::Save => said(store.save_checkpoint(&running.checkpoint(2, b"two")).await),
            Act::RepublishAttempt => self.republish(world, Seen::Running(fence)).await,
            _ => self.lose(world, Seen::Running(fence)).await,
        }
    }

    async fn republish(&self, world: &World, seen: Seen) -> Result<String, StoreError> {
        let to = &self.pod.address;
        said(
            world
                .store
                .republish(&self.term, &self.run, seen, to, "why", true)
                .await,
        )
    }

    async fn lose(&self, world: &World, seen: Seen) -> Result<String, StoreError> {
        let loss = Loss {
            state: RunState::Lost,
            reason: "why".into(),
            quarantine: false,
            digest: None,
            retention: keep(),
        };
        said(world.store.lose(&self.term, &self.run, seen, &loss).await)
    }

    /// Brings the run to its end, wherever it is, and shows that its job goes on.
    async fn live_on(&self, world: &World) {
        for _ in 0..4 {
            match world.state(&self.run).await {
                RunState::Delayed => world.promoted(&self.term, &self.run, &self.pod).await,
                RunState::Scheduled => self.claim_again(world).await,
                RunState::Running => self.end(world).await,
                RunState::Parked => panic!("nobody is in its way"),
                _ => break,
            }
        }
        let state = world.state(&self.run).await;
        assert!(state.is_ended(), "{state:?}");
        let counts = world.store.counts().await.expect("counts");
        assert_eq!(
            (counts.scheduled, counts.running, counts.delayed),
            (0, 0, 0)
        );
        world.take(&self.pod).await;
        let next = world.running(&self.term, &self.job, 9, &self.leader).await;
        world.store.finish(&next.success()).await.expect("finish");
        let view = world
            .store
            .job(&self.job)
            .await
            .expect("job")
            .expect("a view");
        assert_eq!(view.active, None);
        let locks = world
            .store
            .locks(std::slice::from_ref(&self.job))
            .await
            .expect("locks");
        assert_eq!(locks, [None]);
    }

    /// Claims whatever delivery counts, as a pod does that reads what it has not claimed.
    async fn claim_again(&self, world: &World) {
        world.take(&self.pod).await;
        let claiming = world.store.claiming(&self.pod).await.expect("claiming");
        assert!(!claiming.is_empty(), "scheduled, and in no queue");
        for taken in claiming {
            let claim = world.claim_of(&self.pod, &taken);
            world.store.claim(&claim).await.expect("claim");
        }
    }

    async fn end(&self, world: &World) {
        let page = world.store.running(None).await.expect("running");
        let entry = &page.entries[0];
        let locks = world
            .store
            .locks(std::slice::from_ref(&self.job))
            .await
            .expect("locks");
        let holder = locks[0].as_ref().map(|lock| (lock.run.clone(), lock.fence));
        assert_eq!(
            holder,
            Some((self.run.clone(), entry.fence)),
            "an attempt has its lock"
        );
        let view = world
            .store
            .job(&self.job)
            .await
            .expect("job")
            .expect("a view");
        assert_eq!(view.active.as_ref(), Some(&self.run), "and its job's place");
        let claim = world.claim_of(
            &self.pod,
            &Taken {
                run: self.run.clone(),
                delivery: wasmcron_core::ids::Delivery(0),
            },
        );
        let running = Running {
            pod: self.pod.clone(),
            at: AttemptRef {
                job: self.job.clone(),
                run: self.run.clone(),
                fence: entry.fence,
            },
            attempt: wasmcron_store::queue::Attempt {
                began_at: wasmcron_core::time::Timestamp::EPOCH,
                task: entry.task.clone(),
                fence: entry.fence,
                claimed_at: entry.claimed_at,
                checkpoint: None,
                previous_success: None,
            },
            claim,
        };
        let attempts = std::slice::from_ref(&running.at);
        world
            .store
            .extend(&self.pod, attempts, LONG)
            .await
            .expect("extend");
        world
            .store
            .finish(&running.success())
            .await
            .expect("finish");
    }
}

fn said<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> Result<String, StoreError> {
    answer.map(|answer| format!("{answer:?}"))
}

/// Every key that the store may touch in a scene, and those that are there beside them.
async fn keys_of(
    harness: &RedisHarness,
    scene: &Scene,
    hand: &mut MultiplexedConnection,
) -> Vec<String> {
    let keys = &harness.keys;
    let pattern = format!(
        "{}*",
        keys.leader()
            .trim_end_matches("leader")
            .replace(['[', ']'], "?")
    );
    let mut all: Vec<String> = hand.keys(pattern).await.expect("KEYS");
    all.extend([
        keys.scheduled(),
        keys.running(),
        keys.delayed(),
        keys.due(),
        keys.active(),
    ]);
    all.extend([
        keys.fence(),
        keys.delivery(),
        keys.paused(),
        keys.quarantined(),
        keys.execution_log(),
    ]);
    let (job, run) = (&scene.job, &scene.run);
    all.extend([
        keys.lock(job),
        keys.parked(job),
        keys.stats(job),
        keys.runs(job),
        keys.state(job),
    ]);
    all.extend([keys.record(run), keys.checkpoint(run), keys.log(run)]);
    for pod in [&scene.pod, &scene.leader] {
        let pod = &pod.address;
        all.extend([keys.tasks(pod), keys.claiming(pod), keys.pod(pod)]);
    }
    all.sort();
    all.dedup();
    all
}

/// What a key is replaced by, and how to see that it still is.
async fn kind(hand: &mut MultiplexedConnection, key: &str) -> String {
    let kind = redis::cmd("TYPE").arg(key).query_async(hand).await;
    kind.expect("TYPE")
}

async fn spoil(hand: &mut MultiplexedConnection, key: &str) -> &'static str {
    let was = kind(hand, key).await;
    let aside = format!("{key}:aside");
    if was != "none" {
        hand.rename::<_, _, ()>(key, &aside).await.expect("RENAME");
    }
    let text = ["leader", "lock:", "fence", "delivery"];
    let name = key.split_once("}:").map_or(key, |(_, name)| name);
    let is_text = name != "leader:term" && text.iter().any(|text| name.starts_with(text));
    if is_text {
        hand.rpush::<_, _, ()>(key, "x").await.expect("RPUSH");
        "list"
    } else {
        hand.set::<_, _, ()>(key, "x").await.expect("SET");
        "string"
    }
}

/// Puts back what was there, unless the verb wrote over it.
async fn mend(hand: &mut MultiplexedConnection, key: &str, spoilt: &str) {
    let aside = format!("{key}:aside");
    if kind(hand, key).await == spoilt {
        hand.del::<_, ()>(key).await.expect("DEL");
        if kind(hand, &aside).await != "none" {
            hand.rename::<_, _, ()>(&aside, key).await.expect("RENAME");
        }
    } else {
        hand.del::<_, ()>(&aside).await.expect("DEL");
    }
}

/// Spoils one key after the other, each in a world of its own.
fn survives(act: Act, accepted: &[&str]) {
    on_runtime(async {
        let server = Arc::new(RedisServer::start().await);
        let probe = RedisHarness::sharing(server.clone(), "probe");
        let mut hand = probe.hand().await;
        let world = World::new(Arc::new(RedisHarness::sharing(server.clone(), "probe"))).await;
        let keys = keys_of(&probe, &Scene::new(&world, act).await, &mut hand).await;
        let mut refused = 0;
        for (n, key) in keys.iter().enumerate() {
            let namespace = format!("n{n}");
            let harness = Arc::new(RedisHarness::sharing(server.clone(), &namespace));
            let world = World::new(harness).await;
            let scene = Scene::new(&world, act).await;
            let key = key.replacen("{probe}", &format!("{{{namespace}}}"), 1);
            // Keys that carry the hour of their world are spelled anew.
            let key = key.replace(&*world_run(&key), scene.run.as_str());
            let spoilt = spoil(&mut hand, &key).await;
            let first = scene.act(&world, act).await;
            mend(&mut hand, &key, spoilt).await;
            let Err(error) = &first else { continue };
            refused += 1;
            let named =
                matches!(error, StoreError::Refused { message, .. } if message.contains(&key));
            assert!(named, "{act:?} with a broken {key}: {error}");
            let second = scene.act(&world, act).await.expect("the repeat");
            let fits = accepted.iter().any(|word| second.contains(word));
            assert!(fits, "{act:?} after a broken {key}: {second}");
            let checked = std::panic::AssertUnwindSafe(scene.live_on(&world));
            let outcome = futures::FutureExt::catch_unwind(checked).await;
            assert!(outcome.is_ok(), "{act:?} after a broken {key}");
        }
        assert!(refused >= 3, "{act:?} minds only {refused} keys");
    });
}

/// The run's id at the end of a key, if it ends in one.
fn world_run(key: &str) -> String {
    let mut parts = key.splitn(3, ':');
    let id = parts.nth(2).unwrap_or("\u{0}");
    let is_run = id.parse::<RunId>().is_ok();
    if is_run {
        id.to_owned()
    } else {
        "\u{0}".to_owned()
    }
}

macro_rules! acts {
    ($($name:ident: $act:ident => $accepted:expr),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                survives(Act::$act, &$accepted);
            }
        )*
    };
}

acts! {
    c65_publish: Publish => ["[Published]", "[Exists]", "[Deduped"],
    c65_claim: Claim => ["Claimed("],
    c65_skip: Skip => ["Moved"],
    c65_park: Park => ["Parked"],
    c65_hand_back_of_a_task: HandBackTask => ["Moved"],
    c65_hand_back_of_an_attempt: HandBackAttempt => ["Moved"],
    c65_finish_for_good: FinishForGood => ["Finished", "AlreadyFinished"],
    c65_finish_for_now: FinishForNow => ["Finished", "AlreadyFinished"],
    c65_republish_of_a_task: RepublishTask => ["Republished", "Changed"],
    c65_republish_of_an_attempt: RepublishAttempt => ["Republished", "Changed"],
    c65_lose_of_a_task: LoseTask => ["Lost"],
    c65_lose_of_an_attempt: LoseAttempt => ["Lost"],
    c65_promote: Promote => ["[Promoted]"],
    c65_submit: Submit => ["Accepted", "Same"],
    c65_cancel: CancelTask => ["Ended"],
    c65_save_checkpoint: Save => ["Saved("],
}

/// The queue is written after the register: a task that stands in no register is in no queue either.
#[test]
fn c65_a_refused_publish_leaves_nothing_in_the_queue() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        let world = World::new(harness.clone()).await;
        let scene = Scene::new(&world, Act::Publish).await;
        let mut hand = harness.hand().await;
        let key = harness.keys.scheduled();
        let spoilt = spoil(&mut hand, &key).await;
        let refused = scene.act(&world, Act::Publish).await;
        assert!(
            matches!(refused, Err(StoreError::Refused { .. })),
            "{refused:?}"
        );
        assert_eq!(world.take(&scene.pod).await, []);
        mend(&mut hand, &key, spoilt).await;
        assert_eq!(world.cursor(&scene.job).await, world.at(0));
        assert_eq!(world.store.run(&scene.run).await.expect("run"), None);
    });
}
