//! Everything that a store shows, as lines.

use std::fmt::Debug;

use wasmcron_core::time::Timestamp;
use wasmcron_store::inspect::ExecutionEvent;

use super::canonical::{NOMINAL_MAX, said};
use super::inputs::{JOBS, PODS, job, pod};
use super::player::Player;

fn put<T: Debug>(lines: &mut Vec<String>, name: &str, value: T) {
    lines.push(format!("{name}: {value:?}"));
}

/// Whether a time is the store's own, so that what was counted up to it hangs on when the step came.
fn is_clock(at: Timestamp) -> bool {
    u64::try_from(at.as_millis()).is_ok_and(|at| at > NOMINAL_MAX)
}

/// What differs only if the stores do.
pub(super) async fn everything(player: &mut Player) -> String {
    let mut lines = Vec::new();
    registers(player, &mut lines).await;
    jobs(player, &mut lines).await;
    runs(player, &mut lines).await;
    events(player, &mut lines).await;
    let lines = lines.iter().map(|line| player.symbols.canonical(line));
    lines.collect::<Vec<_>>().join("\n")
}

async fn registers(player: &Player, lines: &mut Vec<String>) {
    let store = &player.store;
    put(lines, "leader", store.leader().await.expect("leader"));
    for pod in store.pods().await.expect("pods") {
        put(lines, "pod", pod);
    }
    for i in 0..PODS {
        put(
            lines,
            "claiming",
            store.claiming(&pod(i)).await.expect("claiming"),
        );
    }
    let mut page = store.scheduled(None).await.expect("scheduled");
    page.entries.sort_by_key(|entry| entry.task.run.clone());
    page.corrupt.sort();
    for entry in page.entries {
        put(lines, "scheduled", entry);
    }
    put(lines, "scheduled corrupt", page.corrupt);
    let mut page = store.running(None).await.expect("running");
    page.entries.sort_by_key(|entry| entry.task.run.clone());
    page.corrupt.sort();
    for entry in page.entries {
        put(lines, "running", entry);
    }
    put(lines, "running corrupt", page.corrupt);
    let due = store.due_delayed(100).await.expect("due_delayed");
    for entry in due.entries {
        put(lines, "due", entry.task.run);
    }
    let mut corrupt = due.corrupt;
    corrupt.sort();
    put(lines, "due corrupt", corrupt);
    put(lines, "next due", due.next);
    put(lines, "counts", store.counts().await.expect("counts"));
}

async fn jobs(player: &Player, lines: &mut Vec<String>) {
    let store = &player.store;
    let mut page = store.view(None).await.expect("view");
    page.jobs.sort_by_key(|view| view.job.clone());
    for view in page.jobs {
        put(lines, "view", view);
    }
    put(lines, "view corrupt", page.corrupt);
    let names: Vec<_> = (0..JOBS).map(job).collect();
    let locks = store.locks(&names).await.expect("locks");
    for (name, lock) in names.iter().zip(locks) {
        put(lines, &format!("lock of {name}"), lock);
        for mut gap in store.gaps(name, 100).await.expect("gaps") {
            if is_clock(gap.to) {
                gap.count = 0;
            }
            put(lines, &format!("gap of {name}"), gap);
        }
        let runs = store.runs(name, 100).await.expect("runs");
        let runs: Vec<_> = runs.into_iter().map(|record| record.run).collect();
        put(lines, &format!("runs of {name}"), runs);
        for key in 0..3 {
            let value = store.get_state(name, &format!("key{key}")).await;
            put(
                lines,
                &format!("state of {name}"),
                value.expect("get_state"),
            );
        }
    }
}

async fn runs(player: &Player, lines: &mut Vec<String>) {
    let store = &player.store;
    let counts = store.recoveries(&player.runs).await.expect("recoveries");
    for (run, recoveries) in player.runs.iter().zip(counts) {
        lines.push(format!("run {run}: {}", said(&store.run(run).await)));
        lines.push(format!(
            "delayed {run}: {}",
            said(&store.delayed(run).await)
        ));
        let kept = store.checkpoint(run).await;
        lines.push(format!("checkpoint {run}: {}", said(&kept)));
        let log = store.log(run, None, 100).await.expect("log");
        put(
            lines,
            &format!("log {run}"),
            (log.lines, log.next.is_some()),
        );
        put(lines, &format!("recoveries {run}"), recoveries);
    }
}

/// What the execution log tells since the last look.
async fn events(player: &mut Player, lines: &mut Vec<String>) {
    loop {
        let after = player.log_read.as_deref();
        let events = player.store.execution_log(after, 1_000).await;
        let events = events.expect("execution_log");
        let Some(last) = events.last() else { return };
        player.log_read = Some(last.id.clone());
        for event in events {
            lines.push(told(event));
        }
    }
}

fn told(mut event: ExecutionEvent) -> String {
    let to = event.fields.iter().find(|(name, _)| name == "to");
    let counted_by_clock =
        to.is_some_and(|(_, to)| to.parse().is_ok_and(|to: u64| to > NOMINAL_MAX));
    if counted_by_clock {
        event.fields.retain(|(name, _)| name != "count");
    }
    let ExecutionEvent {
        at,
        event,
        job,
        run,
        fields,
        ..
    } = event;
    format!("event: {at:?} {event} {job} {run} {fields:?}")
}
