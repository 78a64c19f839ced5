//! Campaigns, renews and gives up leadership, as `decide::elect` says.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use wasmcron_core::decide::elect::{self, ElectPolicy, Heard, Part};
use wasmcron_store::control::Wake;
use wasmcron_store::leadership::{Campaign, Renewal, TermRef};

use super::lead::LeadSetter;
use super::outage::Outage;
use super::pod::Pod;

/// Followers wait up to this long beyond the end of a lease, so that they do not campaign together.
pub const SPREAD_MAX: Duration = Duration::from_millis(250);

/// Runs until the pod's loops end; resigns when the pod leaves.
pub async fn run(pod: Arc<Pod>, setter: LeadSetter) {
    let policy = ElectPolicy {
        ttl: pod.settings.leader.ttl.get(),
        renew_every: pod.settings.leader.renewal.get(),
        margin: pod.settings.leader.margin(),
        retry_max: pod.settings.leader.ttl.get(),
    };
    let outage = Outage::new("elector", &pod.health);
    let mut wakes = pod.wakes.subscribe();
    let mut part = Part::Follower {
        campaign_at: pod.machine.boot(),
    };
    loop {
        announce(&pod, &setter, part);
        let wait = elect::wake_at(part).saturating_sub(pod.machine.boot());
        let heard = tokio::select! {
            // The timer comes before wake-ups: no flood of them may make a renewal late.
            biased;
            () = pod.leaving.cancelled() => break,
            () = tokio::time::sleep(wait) => ask(&pod, part, &policy, &outage).await,
            wake = wakes.recv() => match wake {
                Ok(Wake::LeaderFree | Wake::Subscribed) | Err(RecvError::Lagged(_)) => Heard::Free,
                _ => Heard::Tick,
            },
        };
        let before = elect::term(part, pod.machine.boot());
        part = elect::elect(part, heard, pod.machine.boot(), &policy);
        match (before, elect::term(part, pod.machine.boot())) {
            (None, Some(term)) => {
                pod.metrics.event("leader.won");
                tracing::info!(%term, "leader.won");
            }
            (Some(term), None) => {
                pod.metrics.event("leader.lost");
                tracing::warn!(%term, "leader.lost");
            }
            _ => {}
        }
    }
    resign(&pod, &setter, part).await;
}

fn announce(pod: &Pod, setter: &LeadSetter, part: Part) {
    setter.set(part);
    pod.metrics
        .is_leader
        .set(i64::from(elect::term(part, pod.machine.boot()).is_some()));
}

async fn ask(pod: &Pod, part: Part, policy: &ElectPolicy, outage: &Outage) -> Heard {
    let sent = pod.machine.boot();
    // An answer later than this could not be believed for long anyway.
    let patience = policy.ttl / 2;
    let answer = match elect::term(part, sent) {
        Some(term) => {
            let me = TermRef {
                pod: pod.me.clone(),
                term,
            };
            let renewal = pod.store.renew(&me, policy.ttl);
            tokio::time::timeout(patience, renewal).await.map(|answer| {
                answer.map(|renewal| match renewal {
                    Renewal::Renewed => Heard::Lease { sent, term },
                    Renewal::Lost => Heard::Lost,
                })
            })
        }
        None => {
            let campaign = pod.store.campaign(&pod.me, policy.ttl);
            tokio::time::timeout(patience, campaign)
                .await
                .map(|answer| {
                    answer.map(|campaign| match campaign {
                        Campaign::Won(term) => Heard::Lease { sent, term },
                        Campaign::Held { expires_in, .. } => {
                            let spread = pod.machine.jitter(SPREAD_MAX);
                            Heard::Held { expires_in, spread }
                        }
                    })
                })
        }
    };
    match answer {
        Ok(Ok(heard)) => {
            outage.answered();
            heard
        }
        Ok(Err(error)) => {
            outage.failed(&error, &pod.metrics);
            Heard::Error
        }
        Err(_) => Heard::Error,
    }
}

async fn resign(pod: &Pod, setter: &LeadSetter, part: Part) {
    let term = elect::term(part, pod.machine.boot());
    announce(
        pod,
        setter,
        Part::Follower {
            campaign_at: Duration::MAX,
        },
    );
    let Some(term) = term else { return };
    let me = TermRef {
        pod: pod.me.clone(),
        term,
    };
    match pod.store.resign(&me).await {
        Ok(_) => {
            pod.metrics.event("leader.resigned");
            tracing::info!(%term, "leader.resigned");
        }
        Err(error) => {
            tracing::warn!(%term, %error, "could not resign; the lease runs out by itself");
        }
    }
}
