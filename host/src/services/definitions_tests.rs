use std::time::Duration;

use wasmcron_core::job::{Definition, Misfire, Overlap, Retry};
use wasmcron_core::schedule::{Schedule, Trigger};
use wasmcron_core::view::PodLoad;

use super::*;

fn name(job: &str) -> JobName {
    job.parse().expect("a name")
}

fn hash(of: &str) -> DefinitionHash {
    DefinitionHash::of(of.as_bytes())
}

/// A pod that reports these jobs with the definitions of these names.
fn pod(address: &str, jobs: &[(&str, &str)]) -> PodView {
    let since = Timestamp::EPOCH;
    let report = |of: &str| JobReport {
        hash: hash(of),
        since,
    };
    PodView {
        address: address.parse().expect("an address"),
        session: None,
        heartbeat: None,
        report: Some(Arc::new(PodReport {
            version: String::new(),
            started: since,
            capacity: 1,
            labels: BTreeMap::new(),
            plugins: BTreeMap::new(),
            jobs: jobs
                .iter()
                .map(|(job, of)| (name(job), report(of)))
                .collect(),
            refused: BTreeMap::new(),
        })),
        load: PodLoad::default(),
        queued: 0,
    }
}

fn view(job: &str, of: &str) -> JobView {
    let definition = Definition {
        run_timeout: None,
        plugin: "p".parse().expect("a name"),
        enabled: true,
        schedule: Schedule {
            trigger: Trigger::Every {
                period: Duration::from_secs(60),
            },
            starts: None,
            ends: None,
            jitter: Duration::ZERO,
        },
        resumable: true,
        auto_rerun: false,
        exclusive: false,
        timeout: Duration::from_secs(60),
        overlap: Overlap::Skip,
        misfire: Misfire::default(),
        retry: Retry::default(),
        pods: BTreeMap::new(),
        digest: None,
        params: "{}".into(),
    };
    let stored = StoredDefinition {
        definition,
        hash: hash(of),
        since: Timestamp::EPOCH,
    };
    opened(None, &name(job), stored, Timestamp::EPOCH)
}

fn agenda(jobs: &[(&str, &str)]) -> Agenda {
    let mut agenda = Agenda::default();
    for (job, of) in jobs {
        agenda.upsert(view(job, of));
    }
    agenda
}

impl Definitions {
    /// What a step would look into after it compared all reports.
    fn worth_a_look(&mut self, agenda: &Agenda) -> Vec<String> {
        while let Some(report) = self.unread.pop_front() {
            self.compare(&report, agenda);
        }
        self.look.iter().map(ToString::to_string).collect()
    }

    fn settle(&mut self, agenda: &Agenda) {
        while !self.unread.is_empty() || !self.look.is_empty() {
            self.look_around(Mine::default(), agenda);
        }
    }

    fn unsettled(&self) -> Vec<&str> {
        self.unsettled.iter().map(JobName::as_str).collect()
    }
}

#[test]
fn a_pod_that_agrees_is_no_work() {
    let agenda = agenda(&[("a", "x"), ("b", "x"), ("c", "x")]);
    let mut definitions = Definitions::default();
    let mut live = vec![pod("1", &[("a", "x"), ("c", "x")])];
    definitions.heard(&live);
    assert!(definitions.worth_a_look(&agenda).is_empty());
    live.push(pod("2", &[("a", "x"), ("b", "x"), ("c", "x")]));
    definitions.heard(&live);
    assert_eq!(definitions.unread.len(), 1, "only what is new is compared");
    assert!(definitions.worth_a_look(&agenda).is_empty());
    definitions.heard(&live);
    assert!(definitions.unread.is_empty(), "the same objects");
    live.pop();
    definitions.heard(&live);
    assert!(definitions.worth_a_look(&agenda).is_empty());
}

#[test]
fn what_differs_from_what_is_stored_is_looked_into() {
    let agenda = agenda(&[("a", "x"), ("b", "x"), ("d", "x")]);
    let mut definitions = Definitions::default();
    definitions.heard(&[pod("1", &[("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")])]);
    assert_eq!(definitions.worth_a_look(&agenda), ["b", "c"]);
}

#[test]
fn a_disagreement_ends_when_the_other_pod_is_gone_or_changes() {
    let agenda = agenda(&[("a", "x"), ("b", "x")]);
    let mut definitions = Definitions::default();
    let (good, bad) = (
        pod("1", &[("a", "x"), ("b", "x")]),
        pod("2", &[("a", "y"), ("b", "x")]),
    );
    definitions.heard(&[good.clone(), bad.clone()]);
    definitions.settle(&agenda);
    assert_eq!(definitions.unsettled(), ["a"]);
    assert!(definitions.disagreeing.contains("a"));
    definitions.heard(std::slice::from_ref(&good));
    assert_eq!(definitions.worth_a_look(&agenda), ["a"]);
    definitions.settle(&agenda);
    assert!(definitions.unsettled.is_empty() && definitions.disagreeing.is_empty());

    definitions.heard(&[good.clone(), bad]);
    definitions.settle(&agenda);
    assert_eq!(definitions.unsettled(), ["a"]);
    definitions.heard(&[good, pod("2", &[("a", "x"), ("b", "x")])]);
    definitions.settle(&agenda);
    assert!(definitions.unsettled.is_empty());
}

#[test]
fn a_view_that_changed_is_compared_with_every_pod() {
    let mut agenda = agenda(&[("a", "x"), ("b", "x")]);
    let mut definitions = Definitions::default();
    definitions.heard(&[pod("1", &[("a", "x"), ("b", "x")])]);
    definitions.settle(&agenda);
    agenda.upsert(view("a", "z"));
    definitions.view_changed(name("a"));
    definitions.settle(&agenda);
    assert_eq!(definitions.unsettled(), ["a"], "the pod has another one");
    agenda.upsert(view("a", "x"));
    agenda.remove(&name("b"));
    definitions.look_at_all();
    definitions.settle(&agenda);
    assert_eq!(definitions.unsettled(), ["b"], "the store lost it");
}

#[test]
fn a_step_looks_into_a_bounded_number_of_jobs() {
    let jobs: Vec<String> = (0..LOOK_MAX + 1).map(|n| format!("job-{n:05}")).collect();
    let jobs: Vec<(&str, &str)> = jobs.iter().map(|job| (job.as_str(), "x")).collect();
    let mut definitions = Definitions::default();
    definitions.heard(&[pod("1", &jobs)]);
    definitions.look_around(Mine::default(), &Agenda::default());
    assert_eq!(definitions.look.len(), 1);
}
