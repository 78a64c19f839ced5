//! The SDK's promises, shown with small jobs on the native harness.

#![allow(clippy::expect_used, reason = "tests")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmcron_guest::http::{self, Response};
use wasmcron_guest::state::{self, When};
use wasmcron_guest::testing::{Ended, Fault, Harness, kill_everywhere};
use wasmcron_guest::{
    Context, Failure, Job, Migrate, Outcome, SaveError, StopReason, info, secrets,
};

/// Counts by POST to `/effect` in batches; optionally fails or panics at a number.
struct Count;

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CountParams {
    to: u32,
    batch: u32,
    every: u32,
    fail_at: Option<u32>,
    panic_at: Option<u32>,
}

impl Job for Count {
    type Params = CountParams;
    type Checkpoint = u32;
    const CHECKPOINT_SCHEMA: u32 = 2;

    fn run(ctx: &mut Context<Self>, params: CountParams) -> Result<Outcome, Failure> {
        let mut cp = ctx.checkpointer().every(params.every);
        let mut done = cp.load()?.unwrap_or(0);
        while done < params.to {
            if let Some(reason) = ctx.should_stop() {
                return cp.stop(reason, &done);
            }
            let next = (done + params.batch.max(1)).min(params.to);
            for item in done + 1..=next {
                if params.fail_at == Some(item) {
                    return Err(Failure::retry(format!("item {item}")));
                }
                assert!(params.panic_at != Some(item), "item {item} is odd");
                http::post("http://target/effect")
                    .query("item", item)
                    .send()?
                    .error_for_status()?;
            }
            cp.record(&next)?;
            done = next;
            ctx.progress(f64::from(done), Some(f64::from(params.to)), "counting");
        }
        Ok(Outcome::done(format!("{done} items")))
    }
}

impl Migrate for Count {
    fn checkpoint(from_schema: u32, data: &[u8]) -> Result<u32, String> {
        match from_schema {
            1 => std::str::from_utf8(data)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| "not a number".to_owned()),
            other => Err(format!("schema {other} is unknown")),
        }
    }
}

wasmcron_guest::export!(Count, migrate);

type Effects = Rc<RefCell<Vec<u32>>>;

fn count(params: &CountParams) -> (Harness<Count>, Effects) {
    let effects = Effects::default();
    let seen = effects.clone();
    let harness = Harness::new().params(params).http(move |request| {
        let item = request
            .url
            .rsplit('=')
            .next()
            .and_then(|item| item.parse().ok());
        seen.borrow_mut().push(item.expect("an item"));
        Ok(Response::new(204))
    });
    (harness, effects)
}

fn distinct(effects: &Effects) -> Vec<u32> {
    let mut items = effects.borrow().clone();
    items.sort_unstable();
    items.dedup();
    items
}

#[test]
fn c85_a_kill_in_the_second_batch_repeats_items_and_loses_none() {
    let params = CountParams {
        to: 10,
        batch: 5,
        every: 1,
        ..Default::default()
    };
    let (mut harness, effects) = count(&params);
    assert_eq!(
        harness.attempt_with(Fault::KillAfterRequests(6)).ended,
        Ended::Killed
    );
    assert_eq!(
        harness.checkpoint(),
        Some(5),
        "the cursor moves after the batch, not before"
    );
    assert_eq!(harness.attempt().ended, Ended::Done("10 items".to_owned()));
    assert_eq!(*effects.borrow(), [1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10]);
}

#[test]
fn c85_no_kill_at_any_host_call_loses_an_item() {
    let params = CountParams {
        to: 7,
        batch: 2,
        every: 3,
        ..Default::default()
    };
    let world = RefCell::new(Effects::default());
    let killed = kill_everywhere(
        || {
            let (harness, effects) = count(&params);
            world.replace(effects);
            harness
        },
        |harness, last| {
            assert_eq!(last.ended, Ended::Done("7 items".to_owned()));
            assert_eq!(distinct(&world.borrow()), [1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(harness.checkpoint(), None, "success deletes the checkpoint");
        },
    );
    assert!(killed > 10, "{killed}");
}

#[test]
fn c87_a_failed_item_is_attempted_again() {
    let params = CountParams {
        to: 2,
        batch: 1,
        every: 1,
        fail_at: Some(2),
        ..Default::default()
    };
    let (mut harness, effects) = count(&params);
    let first = harness.attempt();
    assert_eq!(
        first.ended,
        Ended::Retry {
            message: "item 2".to_owned(),
            after: None
        }
    );
    assert_eq!(harness.checkpoint(), Some(1));
    let mut harness = harness.params(&CountParams {
        fail_at: None,
        ..params
    });
    assert_eq!(harness.attempt().ended, Ended::Done("2 items".to_owned()));
    assert_eq!(*effects.borrow(), [1, 2]);
}

#[test]
fn c88_an_attempt_without_a_save_leaves_the_checkpoint() {
    let params = CountParams {
        to: 5,
        batch: 1,
        every: 1,
        fail_at: Some(4),
        ..Default::default()
    };
    let (mut harness, _) = count(&params);
    for attempt in 1..=3 {
        assert!(matches!(harness.attempt().ended, Ended::Retry { .. }));
        let saved = harness.saved_checkpoint().expect("a checkpoint");
        assert_eq!(
            (saved.data.as_slice(), saved.attempt),
            (b"3".as_slice(), 1),
            "{attempt}"
        );
    }
}

#[test]
fn offers_between_saves_survive_a_panic_and_die_with_a_kill() {
    let params = CountParams {
        to: 9,
        batch: 1,
        every: 5,
        ..Default::default()
    };
    let (harness, _) = count(&params);
    let mut harness = harness.params(&CountParams {
        panic_at: Some(4),
        ..params
    });
    let first = harness.attempt();
    assert_eq!(first.ended, Ended::Panicked("item 4 is odd".to_owned()));
    assert_eq!((first.saves, harness.checkpoint()), (1, Some(3)));

    let (mut harness, _) = count(&CountParams {
        to: 9,
        batch: 1,
        every: 5,
        ..Default::default()
    });
    harness.attempt_with(Fault::KillAfterRequests(4));
    assert_eq!(harness.checkpoint(), Some(1));
}

#[test]
fn time_makes_a_save_due_as_well() {
    let params = CountParams {
        to: 9,
        batch: 1,
        every: 100,
        ..Default::default()
    };
    let (harness, _) = count(&params);
    let mut harness = harness.tick(Duration::from_millis(100));
    // Four calls an item, 100 ms each: one save in three items.
    assert_eq!(harness.attempt().saves, 3);
}

#[test]
fn stopping_yields_with_a_checkpoint_or_obeys_a_cancel() {
    let params = CountParams {
        to: 9,
        batch: 1,
        every: 1,
        ..Default::default()
    };
    let (mut harness, effects) = count(&params);
    let first = harness.attempt_with(Fault::StopAfterSaves(3, StopReason::Draining));
    assert_eq!(
        (first.ended, harness.checkpoint()),
        (Ended::Yielded, Some(3))
    );
    let second = harness.attempt_with(Fault::StopAfterRequests(2, StopReason::Cancelled));
    assert_eq!(
        (second.ended, harness.checkpoint()),
        (Ended::Cancelled, Some(5))
    );
    harness.finish(1);
    assert_eq!(*effects.borrow(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_fenced_save_stops_the_attempt_and_an_unanswered_one_does_not() {
    let params = CountParams {
        to: 3,
        batch: 1,
        every: 1,
        ..Default::default()
    };
    let (mut harness, effects) = count(&params);
    let first = harness.attempt_with(Fault::RefuseSaves(SaveError::Fenced));
    assert!(
        matches!(first.ended, Ended::Retry { message, .. } if message.contains("another attempt"))
    );
    assert_eq!(effects.borrow().len(), 1);

    let unavailable = SaveError::Unavailable("no answer".to_owned());
    let second = harness.attempt_with(Fault::RefuseSaves(unavailable));
    assert_eq!(second.ended, Ended::Done("3 items".to_owned()));
    assert!(harness.logs()[0].message.contains("no answer"));

    let (mut harness, _) = count(&params);
    let too_large = harness.attempt_with(Fault::RefuseSaves(SaveError::TooLarge { limit: 64 }));
    assert!(matches!(too_large.ended, Ended::Fatal(message) if message.contains("64 bytes")));
}

#[test]
fn c94_a_checkpoint_of_another_schema_starts_over_with_a_warning() {
    let params = CountParams {
        to: 2,
        batch: 1,
        every: 1,
        ..Default::default()
    };
    let (harness, effects) = count(&params);
    let mut harness = harness.saved(1, "1");
    assert_eq!(harness.attempt().ended, Ended::Done("2 items".to_owned()));
    assert_eq!(*effects.borrow(), [1, 2]);
    assert_eq!(
        harness.logs()[0].message,
        "starting over: the checkpoint has schema 1, this plugin reads 2"
    );
    assert_eq!(Count::checkpoint(1, b"1"), Ok(1));
}

#[test]
fn bytes_of_the_own_schema_that_do_not_fit_are_fatal() {
    let (harness, _) = count(&CountParams {
        to: 2,
        ..Default::default()
    });
    let ended = harness.saved(2, "\"x\"").attempt().ended;
    assert!(matches!(ended, Ended::Fatal(message) if message.contains("CHECKPOINT_SCHEMA")));
}

#[test]
fn parameters_that_do_not_fit_are_fatal_and_named() {
    let mut harness = Harness::<Count>::new().params(&serde_json::json!({ "to": "ten" }));
    assert_eq!(
        harness.attempt().ended,
        Ended::Fatal("parameter `to`: invalid type: string \"ten\", expected u32".to_owned())
    );
}

#[test]
fn http_errors_say_whether_to_try_again() {
    let params = CountParams {
        to: 1,
        batch: 1,
        every: 1,
        ..Default::default()
    };
    let mut denied = Harness::<Count>::new().params(&params);
    assert!(matches!(denied.attempt().ended, Ended::Fatal(message)
        if message.starts_with("POST http://target/effect: denied")));

    let answer = |status: u16| {
        let mut harness = Harness::<Count>::new().params(&params).http(move |_| {
            Ok(Response::new(status)
                .with_header("Retry-After", "7")
                .with_body("busy"))
        });
        harness.attempt().ended
    };
    assert_eq!(
        answer(503),
        Ended::Retry {
            message: "POST http://target/effect: status 503 (busy)".to_owned(),
            after: Some(Duration::from_secs(7)),
        }
    );
    assert!(matches!(answer(404), Ended::Fatal(_)));
}

/// Keeps a number in the job's state and wants a secret.
struct Remember;

impl Job for Remember {
    type Params = wasmcron_guest::NoParams;
    type Checkpoint = ();

    fn run(_: &mut Context<Self>, _: Self::Params) -> Result<Outcome, Failure> {
        let token = secrets::get("token")?;
        let runs: u32 = state::get_json("runs")?.unwrap_or(0) + 1;
        state::set_json("runs", &runs, When::OnSuccess)?;
        assert_eq!(state::get_json("runs")?, Some(runs), "own writes are seen");
        info!("run {runs}, token {token:?}");
        if runs == 2 && token.expose() == "stale" {
            return Err(Failure::fatal("stale token"));
        }
        Ok(Outcome::done("remembered"))
    }
}

#[test]
fn state_takes_effect_with_success_only_and_secrets_stay_hidden() {
    let mut harness = Harness::<Remember>::new().secret("token", "stale");
    assert_eq!(
        harness.attempt().ended,
        Ended::Done("remembered".to_owned())
    );
    assert_eq!(harness.state("runs"), Some(b"1".to_vec()));
    harness.next_run("job@later");
    assert_eq!(
        harness.attempt().ended,
        Ended::Fatal("stale token".to_owned())
    );
    assert_eq!(harness.state("runs"), Some(b"1".to_vec()));
    assert_eq!(harness.logs()[1].message, "run 2, token Secret(hidden)");

    let denied = Harness::<Remember>::new().attempt().ended;
    assert!(matches!(denied, Ended::Fatal(message) if message.contains("`token` is not granted")));
}
