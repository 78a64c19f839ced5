use std::collections::BTreeMap;

use wasmcron_core::cron::{Cron, Zone};
use wasmcron_core::ids::{Digest, Fence, JobName, PodRef, RunId, Term};
use wasmcron_core::job::{Definition, Misfire, Overlap, Retry, StoredDefinition};
use wasmcron_core::run::AttemptRecord;
use wasmcron_core::schedule::Schedule;
use wasmcron_core::task::{Reason, Task};
use wasmcron_core::view::{Hold, JobReport, PodLoad, PodReport, Successes, Waiting};

use super::*;

const SESSION: &str = "01JDX000000000000000000001";
const WINDOW: Duration = Duration::from_secs(8);

fn at(time: &str) -> Timestamp {
    format!("2026-11-29T{time}Z").parse().expect("time")
}

/// A job that fires each hour, seen at half past one by a live pod that leads.
struct World {
    job: JobView,
    leader: Option<Leader>,
    pods: Vec<Pod>,
    open: Option<RunRecord>,
    due: Option<Timestamp>,
    queued: Option<ScheduledEntry>,
    now: Timestamp,
}

fn definition() -> Definition {
    let expression = Cron::parse("0 * * * *").expect("cron");
    Definition {
        plugin: "p".parse().expect("name"),
        enabled: true,
        schedule: Schedule {
            trigger: Trigger::Cron {
                expression,
                timezone: Zone::UTC,
            },
            starts: None,
            ends: None,
            jitter: Duration::ZERO,
        },
        resumable: false,
        auto_rerun: false,
        exclusive: false,
        timeout: Duration::from_secs(60),
        run_timeout: None,
        overlap: Overlap::Skip,
        misfire: Misfire::default(),
        retry: Retry::default(),
        pods: BTreeMap::new(),
        digest: None,
        params: "{}".into(),
    }
}

fn pod(address: &str) -> Pod {
    let job: JobName = "job".parse().expect("name");
    let report = PodReport {
        version: "0".into(),
        started: Timestamp::EPOCH,
        capacity: 4,
        labels: BTreeMap::new(),
        plugins: [("p".parse().expect("name"), Digest::of(b"p"))].into(),
        jobs: [(
            job,
            JobReport {
                hash: definition().hash(),
                since: Timestamp::EPOCH,
            },
        )]
        .into(),
        refused: BTreeMap::new(),
    };
    Pod {
        address: address.parse().expect("address"),
        session: Some(SESSION.parse().expect("session")),
        heartbeat: Some(at("01:29:59")),
        report: Some(report.into()),
        load: PodLoad {
            running: 2,
            ..PodLoad::default()
        },
        queued: 0,
    }
}

fn world() -> World {
    let definition = definition();
    let hash = definition.hash();
    let pod_a = PodRef {
        address: "a".parse().expect("address"),
        session: SESSION.parse().expect("session"),
    };
    World {
        job: JobView {
            job: "job".parse().expect("name"),
            stored: StoredDefinition {
                definition,
                hash,
                since: Timestamp::EPOCH,
            },
            cursor: at("01:00:00"),
            paused: None,
            quarantined: None,
            active: None,
            waiting: None,
            successes: Successes::default(),
        },
        leader: Some(Leader {
            pod: pod_a,
            term: Term(1),
            since: Timestamp::EPOCH,
            expires_in: WINDOW,
        }),
        pods: vec![pod("a")],
        open: None,
        due: None,
        queued: None,
        now: at("01:30:00"),
    }
}

fn run(state: RunState, why: Option<&str>) -> RunRecord {
    let job: JobName = "job".parse().expect("name");
    let attempt = AttemptRecord {
        attempt: 2,
        pod: "a".parse().expect("address"),
        fence: Fence(7),
        reason: Reason::Scheduled,
        digest: None,
        claimed_at: at("01:25:00"),
        ended_at: None,
        resumed_from: None,
        outcome: None,
    };
    RunRecord {
        run: RunId::nominal(&job, at("01:00:00")),
        job,
        nominal: at("01:00:00"),
        reason: Reason::Scheduled,
        state,
        created_at: at("01:00:00"),
        ended_at: None,
        why: why.map(str::to_owned),
        recoveries: 0,
        of: None,
        attempts: vec![attempt],
        progress: None,
        params: "{}".into(),
    }
}

fn entry() -> ScheduledEntry {
    let job: JobName = "job".parse().expect("name");
    let id = RunId::nominal(&job, at("01:00:00"));
    ScheduledEntry {
        task: Task::first(id, at("01:00:00"), Reason::Scheduled, "{}".into()),
        pod: "a".parse().expect("address"),
        session: SESSION.parse().expect("session"),
        delivery: wasmcron_core::ids::Delivery(1),
        published_at: at("01:29:50"),
    }
}

fn hold(why: &str) -> Option<Hold> {
    Some(Hold {
        by: "ann@desk".into(),
        at: at("01:10:00"),
        why: why.into(),
        digest: None,
    })
}

fn ask(change: impl FnOnce(&mut World)) -> String {
    let mut world = world();
    change(&mut world);
    let answer = why(&Situation {
        job: &world.job,
        now: world.now,
        leader: world.leader.as_ref(),
        pods: &world.pods,
        window: WINDOW,
        open: world.open.as_ref(),
        due: world.due,
        queued: world.queued.as_ref(),
    });
    assert!(answer.sentence.ends_with('.'), "{}", answer.sentence);
    format!(
        "{} | {}",
        answer.code,
        answer.sentence.replace("2026-11-29T", "")
    )
}

#[test]
fn a_job_without_a_run() {
    type Case = (fn(&mut World), &'static str);
    let table: [Case; 12] = [
        (|_| (), "not-due | It is not due until 02:00:00Z, in 30m."),
        (
            |w| w.job.stored.definition.enabled = false,
            "disabled | It is disabled: its job file says `enabled = false`.",
        ),
        (
            |w| w.job.paused = hold("release night"),
            "paused | It was paused by ann@desk at 01:10:00Z: release night.",
        ),
        (
            |w| w.job.quarantined = hold("it killed 3 pods"),
            "quarantined | It was put in quarantine at 01:10:00Z: it killed 3 pods; `job resume` lets it fire again.",
        ),
        (
            |w| w.leader = None,
            "no-leader | No pod leads, so nothing is published; 1 pod is alive and one should take over within seconds.",
        ),
        (
            |w| {
                w.leader = None;
                w.now = at("02:30:00");
            },
            "no-leader | No pod leads, so nothing is published; no pod is alive.",
        ),
        (
            |w| w.pods = Vec::new(),
            "no-live-pod | It is not due until 02:00:00Z, but as things stand: no live pod.",
        ),
        (
            |w| w.job.cursor = at("00:00:00"),
            "due | Its firing of 01:00:00Z is due and about to be published.",
        ),
        (
            |w| {
                w.job.cursor = at("00:00:00");
                w.job.stored.definition.plugin = "other".parse().expect("name");
            },
            "no-pod-with-plugin | Its firing of 01:00:00Z is due, but no live pod has the plugin other.",
        ),
        (
            |w| {
                w.job.cursor = at("00:00:00");
                w.job.waiting = Some(Waiting {
                    since: at("01:00:01"),
                    why: "no live pod".into(),
                });
            },
            "waiting | Its firing of 01:00:00Z is due and has waited since 01:00:01Z: no live pod.",
        ),
        (
            |w| w.job.stored.definition.schedule.trigger = Trigger::Manual,
            "manual | It has no schedule and runs only by hand (`job trigger`).",
        ),
        (
            |w| w.job.stored.definition.schedule.ends = Some(at("01:15:00")),
            "over | Its schedule has no firing left before its end at 01:15:00Z.",
        ),
    ];
    for (change, expected) in table {
        assert_eq!(ask(change), expected);
    }
}

#[test]
fn pods_that_disagree_are_named() {
    let answer = ask(|w| {
        let mut other = pod("b");
        let mut changed = definition();
        changed.exclusive = true;
        let report = JobReport {
            hash: changed.hash(),
            since: Timestamp::EPOCH,
        };
        let said = other.report.as_mut().expect("report");
        let jobs = &mut std::sync::Arc::make_mut(said).jobs;
        jobs.insert("job".parse().expect("name"), report);
        w.pods.push(other);
    });
    assert!(
        answer.starts_with("pods-disagree | It is not due until 02:00:00Z")
            && answer.contains("2 different files"),
        "{answer}"
    );
}

#[test]
fn a_job_with_a_run() {
    type Case = (fn(&mut World), &'static str);
    let table: [Case; 8] = [
        (
            |w| w.open = Some(run(RunState::Running, None)),
            "running | It is running: run job@01:00:00Z, attempt 2 on pod a for 5m.",
        ),
        (
            |w| {
                w.open = Some(run(RunState::Delayed, Some("attempt 1 failed: 503")));
                w.due = Some(at("01:30:20"));
            },
            "delayed | Run job@01:00:00Z waits until 01:30:20Z: attempt 1 failed: 503.",
        ),
        (
            |w| {
                w.open = Some(run(RunState::Delayed, None));
                w.leader = None;
            },
            "delayed | Run job@01:00:00Z waits: its time has not come, and no pod leads that could send it on.",
        ),
        (
            |w| {
                w.open = Some(run(
                    RunState::Parked,
                    Some("overlap with run job@00:00:00Z"),
                ));
            },
            "parked | Run job@01:00:00Z waits for the end of another run of the job: overlap with run job@00:00:00Z.",
        ),
        (
            |w| {
                w.open = Some(run(RunState::Scheduled, None));
                w.queued = Some(entry());
            },
            "queued | Run job@01:00:00Z has been in the queue of pod a for 10s, which executes 2 attempts.",
        ),
        (
            |w| {
                w.open = Some(run(RunState::Scheduled, None));
                w.queued = Some(entry());
                w.pods[0].load.exclusive = Some(entry().task.run);
            },
            "exclusive-wait | Run job@01:00:00Z needs pod a to itself and waits for the end of 2 other attempts there.",
        ),
        (
            |w| {
                w.open = Some(run(RunState::Scheduled, None));
                w.queued = Some(entry());
                w.pods.clear();
            },
            "recovering | Run job@01:00:00Z was sent to pod a, which is gone; the leader sends it elsewhere.",
        ),
        (
            // C92: a killed pod's run does not look as if it were running for ever.
            |w| {
                w.open = Some(run(RunState::Running, None));
                w.pods[0].heartbeat = Some(at("01:29:50"));
            },
            "recovering | Run job@01:00:00Z was running on pod a, which has been silent for 10s; the leader recovers it when its lock ends.",
        ),
    ];
    for (change, expected) in table {
        assert_eq!(ask(change), expected);
    }
}

/// No file any more, on any pod that has said what it has: whatever its schedule was, it does not fire, whether
/// or not one is due.
#[test]
fn a_job_without_a_file() {
    let without = |world: &mut World| {
        let report = world.pods[0].report.as_deref().expect("a report");
        let jobs = BTreeMap::new();
        let report = PodReport {
            jobs,
            ..report.clone()
        };
        world.pods[0].report = Some(report.into());
    };
    let due = ask(|world| {
        without(world);
        world.job.cursor = at("00:00:00");
    });
    assert!(due.starts_with("removed | It was removed"), "{due}");
    let ahead = ask(without);
    assert!(ahead.starts_with("removed | It was removed"), "{ahead}");
    let manual = ask(|world| {
        without(world);
        world.job.stored.definition.schedule.trigger = Trigger::Manual;
    });
    assert!(
        manual.starts_with("removed | ") && manual.contains("24 h"),
        "{manual}"
    );
    let unknown = ask(|world| {
        without(world);
        world.job.stored.definition.schedule.trigger = Trigger::Manual;
        let mut silent = pod("b");
        silent.report = None;
        world.pods.push(silent);
    });
    assert!(unknown.starts_with("manual | "), "{unknown}");
}
