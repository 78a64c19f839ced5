//! Many pods want to lead.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use wasmcron_core::time::Timestamp;

use crate::harness::{Fleet, PATIENCE, PodProcess, Signal, Timing, until};

const PODS: usize = 20;
/// What becomes of one leader after the other.
const ENDS: [Signal; 6] = [
    Signal::Kill,
    Signal::Kill,
    Signal::Terminate,
    Signal::Kill,
    Signal::Terminate,
    Signal::Kill,
];
/// A lease of 1.5 s, the followers' spread of 0.25 s, and a machine that does other things as well.
const TAKEOVER_MAX: Duration = Duration::from_millis(1_500 + 250 + 3_000);

/// A term that a pod won, as its log says.
#[derive(Clone, Debug)]
struct Won {
    at: Timestamp,
    pod: String,
}

/// Twenty pods, whose leaders are killed or leave one after the other: each term has one leader, terms rise
/// in the order in which they were won, and somebody leads again within the lease. (C28, C29)
#[tokio::test(flavor = "multi_thread")]
async fn twenty_pods_have_one_leader_a_term() {
    let fleet = Fleet::new(Timing::Fast).await;
    let names: Vec<String> = (1..=PODS).map(|n| format!("pod-{n:02}")).collect();
    let mut pods = join_all(names.iter().map(|name| fleet.pod(name))).await;
    fleet.live(PODS).await;
    let mut reigns = Vec::new();
    for end in ENDS {
        let (leader, term) = leads(&fleet, reigns.last().map(|(_, term, _)| *term)).await;
        let at = pods.iter().position(|pod| pod.address() == leader);
        let pod = pods.swap_remove(at.expect("a pod that lives leads"));
        // Nobody else takes itself for the leader while this one lives.
        let leading = leading(&pods).await;
        assert!(leading.is_empty(), "{leader} leads, and so do {leading:?}");
        let ended = fleet.now().await;
        pod.signal(end);
        pod.ended().await;
        let (next, newer) = leads(&fleet, Some(term)).await;
        let took = fleet.now().await.since(ended);
        assert!(took <= TAKEOVER_MAX, "{next} took over after {took:?}");
        assert!(newer > term, "term {newer} after {term}");
        reigns.push((leader, term, ended));
    }
    let won = terms(&fleet, &names);
    for (leader, term, ended) in &reigns {
        assert_eq!(won[term].pod, *leader, "{won:?}");
        let next = won.range(term + 1..).next().expect("a later term").1;
        assert!(
            next.at >= *ended,
            "{next:?} before {leader} ended at {ended}"
        );
    }
    let times: Vec<Timestamp> = won.values().map(|won| won.at).collect();
    assert!(times.is_sorted(), "{won:?}");
}

/// Who leads in a term after this one, by the store.
async fn leads(fleet: &Fleet, after: Option<u64>) -> (String, u64) {
    until("a leader", PATIENCE, async || {
        let leader = fleet.store().leader().await.expect("the leader")?;
        let newer = after.is_none_or(|after| leader.term.0 > after);
        newer.then(|| (leader.pod.address.to_string(), leader.term.0))
    })
    .await
}

/// Which of these pods take themselves for the leader.
async fn leading(pods: &[PodProcess]) -> Vec<&str> {
    let says = join_all(pods.iter().map(|pod| pod.metric("scheduler_is_leader"))).await;
    let pods = pods.iter().zip(says).filter(|(_, says)| *says > 0.0);
    pods.map(|(pod, _)| pod.address()).collect()
}

/// Every term that was won, by all pods' logs, which survive them: what the store says now is only the
/// last of them.
fn terms(fleet: &Fleet, names: &[String]) -> BTreeMap<u64, Won> {
    let mut terms: BTreeMap<u64, Won> = BTreeMap::new();
    for name in names {
        let log = fleet.folder().join(format!("{name}.log"));
        let text = std::fs::read_to_string(log).expect("the log");
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        for line in lines.filter(|line| line["message"] == "leader.won") {
            let word = |key: &str| line[key].as_str().expect("a text").to_owned();
            let won = Won {
                at: word("timestamp").parse().expect("a time"),
                pod: name.clone(),
            };
            let term = word("term").parse().expect("a term");
            if let Some(other) = terms.insert(term, won.clone()) {
                panic!("term {term} was won by {other:?} and {won:?}");
            }
        }
    }
    terms
}
