//! All keys of a namespace in one slot, so that every script is legal in a cluster (C64).

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use wasmcron_store::redis::keys::Keys;
use wasmcron_tests::conformance::{self, World};
use wasmcron_tests::redis_server::RedisServer;

use crate::harness::{RedisHarness, on_runtime};

/// The slot of a key, as the cluster specification computes it: CRC16 (XMODEM) of the part in the
/// first braces, if there is one and it is not empty, modulo 16,384.
fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    let crc = tag.unwrap_or(key).bytes().fold(0_u16, |mut crc, byte| {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            };
        }
        crc
    });
    crc % 16_384
}

async fn keys_in(hand: &mut MultiplexedConnection) -> Vec<String> {
    let keys = redis::cmd("KEYS").arg("*").query_async(hand).await;
    keys.expect("KEYS")
}

#[test]
fn slots_are_computed_as_the_specification_says() {
    assert_eq!(slot("123456789"), 0x31c3);
    assert_eq!(slot("{distributed_scheduler}:tasks:pod-a"), 15_046);
    assert_eq!(slot("distributed_scheduler:scheduled_tasks"), 2_657);
    assert_eq!(slot("distributed_scheduler:leader"), 650);
}

/// Every key that a busy world leaves behind, with an address and names that look like hash tags as
/// far as they may.
#[test]
fn c64_every_key_is_in_one_slot() {
    on_runtime(async {
        let harness = Arc::new(RedisHarness::start().await);
        for address in ["[fd00::1]:8080", "10.0.0.7:8080"] {
            let world = World::new(harness.clone()).await;
            let pod = world.pod(address).await;
            let term = world.lead(&pod).await;
            let job = world
                .job(&term, &address.replace(['[', ']', ':'], "x"))
                .await;
            let running = world.running(&term, &job, 1, &pod).await;
            running.save(&world, 1, b"x").await;
            world.fire(&term, &job, 2, &pod).await;
            let taken = world.take_one(&pod).await;
            world.store.park(&pod, &taken, 1).await.expect("park");
            world.fire(&term, &job, 3, &pod).await;
            world.fire(&term, &job, 4, &pod).await;
            let mut consumer = world.store.consumer(&pod);
            consumer
                .take(Duration::from_secs(1), 1)
                .await
                .expect("take");
            world
                .publish(&term, &[world.gap(&job, 5, 6, "misfire")])
                .await;
            let mut manual = world.manual(&job);
            manual.idempotency = Some(wasmcron_store::schedule::IdempotencyKey {
                key: format!("}}a{{b}} {address}"),
                body: "x".into(),
            });
            world.submitted(&manual).await;
            world.depose(&term).await;
        }
        let world = World::new(harness.clone()).await;
        world.lead(&world.pod("a").await).await;
        let keys = keys_in(&mut harness.hand().await).await;
        assert!(keys.len() > 30, "{keys:?}");
        let expected = slot(&harness.keys.leader());
        for key in &keys {
            assert_eq!(slot(key), expected, "{key}");
        }
    });
}

#[test]
fn c64_a_namespace_keeps_its_tag_whole() {
    for bad in ["", "a{b", "a}b", "{", "}"] {
        assert!(Keys::new(bad).is_err(), "{bad:?}");
    }
    for good in ["a", "[fd00::1]", "a:b", "a|b"] {
        let keys = Keys::new(good).expect("a good name");
        let pod = "[fd00::1]:8080".parse().expect("an address");
        assert_eq!(slot(&keys.tasks(&pod)), slot(&keys.scheduled()), "{good}");
    }
}

async fn clustered() -> RedisServer {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut hand = client
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    let slots: Vec<u16> = (0..16_384).collect();
    let mut cmd = redis::cmd("CLUSTER");
    let done: redis::RedisResult<()> = cmd.arg("ADDSLOTS").arg(slots).query_async(&mut hand).await;
    done.expect("CLUSTER ADDSLOTS");
    for _ in 0..1_000 {
        let mut cmd = redis::cmd("CLUSTER");
        let info: String = cmd
            .arg("INFO")
            .query_async(&mut hand)
            .await
            .expect("CLUSTER INFO");
        if info.contains("cluster_state:ok") {
            return server;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the cluster does not come up");
}

/// The stories that between them use every verb, over a clustered server.
#[test]
fn c64_every_script_is_legal_in_a_cluster() {
    on_runtime(async {
        let server = Arc::new(clustered().await);
        macro_rules! cases {
            ($($group:ident::$case:ident),* $(,)?) => {
                $(
                    let harness = RedisHarness::sharing(server.clone(), stringify!($case)).clustered();
                    conformance::$group::$case(World::new(Arc::new(harness)).await).await;
                )*
            };
        }
        cases![
            life::from_registration_to_success,
            control::verbs_wake_the_listeners,
            delayed::a_stuck_run_is_put_off,
            delayed::a_backfill_ends_at_the_cursor,
            field::c30_a_deposed_leader_changes_nothing,
            found::a_repeated_claim_renews_the_lock,
            broken::c39_a_running_entry_cut_short,
            broken::c39_a_delayed_entry_cut_short,
            inspect::the_execution_log_tells_what_happened,
            kept::a_checkpoint_is_cleared_between_attempts,
            kept::state_has_a_limit,
            kept::log_lines_stand_in_order,
            kept::the_latest_progress_is_shown,
            leadership::resigning_frees_the_lease,
            operate::a_paused_job_fires_nothing,
            operate::a_quarantined_job_fires_nothing,
            operate::a_retired_job_keeps_its_records,
            operate::why_a_job_waits_is_shown,
            operate::a_pod_is_asked_to_leave,
            delayed::a_run_that_waits_is_given_up,
            kept::a_checkpoint_is_rewound_between_attempts,
            parked::every_end_releases,
            pods::a_pod_that_leaves_gets_nothing_more,
            pods::a_silent_pod_is_forgotten,
            pods::a_report_replaces_the_last_one,
            queue::an_entry_that_is_none_is_set_aside,
            queue::a_skipped_firing_is_over,
            queue::c37_a_dead_sessions_attempt_is_given_back,
            recovery::c47_the_old_copy_of_a_moved_task_is_inert,
            recovery::a_run_that_is_given_up_is_over,
            runs::a_pod_extends_all_its_attempts,
            schedule::a_changed_definition_moves_the_cursor,
            schedule::a_gap_moves_the_cursor,
        ];
    });
}
