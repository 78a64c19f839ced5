//! Who may publish.

use std::time::Duration;

use wasmcron_core::ids::Term;
use wasmcron_store::leadership::{Campaign, Renewal, TermRef};
use wasmcron_store::schedule::PublishAnswer;

use super::{LONG, World};

/// An empty store has no leader.
pub async fn nobody_leads_at_first(world: World) {
    assert_eq!(world.store.leader().await.expect("leader"), None);
}

/// The lease names its holder, its term and its end.
pub async fn the_lease_names_its_holder(world: World) {
    let pod = world.pod("a").await;
    let before = world.now().await;
    let term = world.lead(&pod).await;
    let leader = world
        .store
        .leader()
        .await
        .expect("leader")
        .expect("one leads");
    assert_eq!((leader.pod, leader.term), (pod, term.term));
    assert!(leader.expires_in > LONG / 2 && leader.expires_in <= LONG);
    assert!(leader.since >= before && leader.since <= world.now().await);
}

/// Who comes second is told who leads and how long to wait.
pub async fn the_second_is_told_who_leads(world: World) {
    let (first, second) = (world.pod("a").await, world.pod("b").await);
    world.lead(&first).await;
    match world.store.campaign(&second, LONG).await.expect("campaign") {
        Campaign::Held { by, expires_in } => {
            assert_eq!(by, first.address);
            assert!(expires_in > LONG / 2 && expires_in <= LONG);
        }
        won @ Campaign::Won(_) => panic!("{won:?}"),
    }
}

/// The answer to a campaign was lost: asking again wins the same term and the full lease.
pub async fn a_repeated_campaign_wins_the_same_term(world: World) {
    let pod = world.pod("a").await;
    let short = Duration::from_secs(60);
    let first = world.store.campaign(&pod, short).await.expect("campaign");
    let again = world.store.campaign(&pod, LONG).await.expect("campaign");
    assert!(matches!(first, Campaign::Won(_)));
    assert_eq!(again, first);
    let leader = world
        .store
        .leader()
        .await
        .expect("leader")
        .expect("one leads");
    assert!(leader.expires_in > short);
}

/// A lease that ran out is free, and every term is larger than those before it.
pub async fn a_lease_that_ran_out_is_free_and_terms_grow(world: World) {
    let (first, second) = (world.pod("a").await, world.pod("b").await);
    let mut last = Term(0);
    for pod in [&first, &second, &first] {
        let term = world.lead(pod).await;
        assert!(term.term > last);
        last = term.term;
        world.depose(&term).await;
    }
}

/// Renewing sets the lease to its full length, however little was left.
pub async fn c29_renewal_sets_the_full_length(world: World) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    for ttl in [Duration::from_secs(30), LONG, Duration::from_secs(45)] {
        let renewed = world.store.renew(&term, ttl).await.expect("renew");
        assert_eq!(renewed, Renewal::Renewed);
        let leader = world
            .store
            .leader()
            .await
            .expect("leader")
            .expect("one leads");
        assert_eq!((&leader.pod, leader.term), (&pod, term.term));
        assert!(leader.expires_in > ttl / 2 && leader.expires_in <= ttl);
        let tried = world.store.campaign(&other, LONG).await.expect("campaign");
        assert!(matches!(tried, Campaign::Held { .. }));
    }
}

/// A lease that was renewed for longer than it was won for lasts that long.
pub async fn a_longer_renewal_is_not_cut(world: World) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let won = world.store.campaign(&pod, LONG / 10).await;
    let Ok(Campaign::Won(term)) = won else {
        panic!("{won:?}");
    };
    let term = TermRef { pod, term };
    let renewed = world.store.renew(&term, LONG).await;
    assert_eq!(renewed.expect("renew"), Renewal::Renewed);
    for _ in 0..2 {
        let held = world.store.campaign(&other, LONG).await.expect("campaign");
        let Campaign::Held { expires_in, .. } = held else {
            panic!("{held:?}");
        };
        assert!(expires_in > LONG / 2, "{expires_in:?}");
    }
}

/// Only pod, session and term together renew; a lost lease is not renewed back to life.
pub async fn only_the_holder_renews(world: World) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    let wrong = [
        TermRef {
            pod: other.clone(),
            term: term.term,
        },
        TermRef {
            pod: world.session("a"),
            term: term.term,
        },
        TermRef {
            pod: pod.clone(),
            term: Term(term.term.0 + 1),
        },
    ];
    for wrong in &wrong {
        let renewed = world.store.renew(wrong, LONG).await.expect("renew");
        assert_eq!(renewed, Renewal::Lost, "{wrong:?}");
    }
    world.depose(&term).await;
    assert_eq!(
        world.store.renew(&term, LONG).await.expect("renew"),
        Renewal::Lost
    );
    assert_eq!(world.store.leader().await.expect("leader"), None);
}

/// A restarted pod does not lead because its address does.
pub async fn c37_another_session_of_the_address_does_not_lead(world: World) {
    let old = world.pod("a").await;
    let term = world.lead(&old).await;
    let new = world.pod("a").await;
    let tried = world.store.campaign(&new, LONG).await.expect("campaign");
    assert!(matches!(tried, Campaign::Held { ref by, .. } if *by == old.address));
    let as_new = TermRef {
        pod: new,
        term: term.term,
    };
    assert_eq!(
        world.store.renew(&as_new, LONG).await.expect("renew"),
        Renewal::Lost
    );
    assert_eq!(
        world.store.resign(&as_new).await.expect("resign"),
        Renewal::Lost
    );
}

/// Resigning frees the lease at once; a repeat is told the same.
pub async fn resigning_frees_the_lease(world: World) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    for _ in 0..2 {
        assert_eq!(
            world.store.resign(&term).await.expect("resign"),
            Renewal::Renewed
        );
    }
    assert!(world.lead(&other).await.term > term.term);
    assert_eq!(
        world.store.renew(&term, LONG).await.expect("renew"),
        Renewal::Lost
    );
}

/// Who lost the lease cannot take it from its successor by resigning.
pub async fn c34_resigning_frees_only_ones_own_lease(world: World) {
    let (pod, other) = (world.pod("a").await, world.pod("b").await);
    let term = world.lead(&pod).await;
    world.depose(&term).await;
    world.lead(&other).await;
    assert_eq!(
        world.store.resign(&term).await.expect("resign"),
        Renewal::Lost
    );
    let leader = world
        .store
        .leader()
        .await
        .expect("leader")
        .expect("one leads");
    assert_eq!(leader.pod, other);
}

/// A lease that lapsed is no lease, even while nobody else took it.
pub async fn a_lapsed_lease_publishes_nothing(world: World) {
    let pod = world.pod("a").await;
    let term = world.lead(&pod).await;
    let job = world.job(&term, "j").await;
    world.depose(&term).await;
    let firing = world.firing(&job, 1, &pod);
    let answer = world
        .store
        .publish(&term, &[firing])
        .await
        .expect("publish");
    assert_eq!(answer, PublishAnswer::NotLeader);
}
