//! Which definition of a job rules, when pods may hold different ones.

use crate::ids::DefinitionHash;
use crate::job::{Definition, StoredDefinition};
use crate::time::Timestamp;
use crate::view::JobReport;

/// What the leader does about a job's definition.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconcile {
    /// The stored one rules and every active pod that has the job agrees.
    InForce,
    /// Put this one in force; everything before `stored.since` is decided by the old one first.
    Open {
        /// Hash of the stored one, if there is one.
        was: Option<DefinitionHash>,
        /// The new one, with the moment from which on it rules.
        stored: Box<StoredDefinition>,
    },
    /// Active pods hold different definitions; the stored one rules meanwhile.
    Disagree {
        /// How many different ones.
        definitions: usize,
    },
    /// No active pod has the job any more.
    Orphaned,
    /// The pods agree on a definition that the leader's own file does not have.
    NotOurs,
}

/// Compares the stored definition, the leader's own and the reports of all active pods.
///
/// A job without a stored definition starts when the first active pod reported it, so that a firing
/// that fell into a change of leader is not lost. A changed one starts when the last pod took it up.
#[must_use]
pub fn reconcile(
    stored: Option<&StoredDefinition>,
    mine: Option<&Definition>,
    reports: &[&JobReport],
) -> Reconcile {
    let Some(first) = reports.first() else {
        return Reconcile::Orphaned;
    };
    let mut hashes: Vec<_> = reports.iter().map(|report| &report.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    // Where nothing is stored yet there is no old definition to go on with: the leader's own starts.
    if hashes.len() > 1 && stored.is_some() {
        return Reconcile::Disagree {
            definitions: hashes.len(),
        };
    }
    if stored.is_some_and(|stored| stored.hash == first.hash) {
        return Reconcile::InForce;
    }
    let Some(mine) = mine else {
        return Reconcile::NotOurs;
    };
    let hash = mine.hash();
    let times = || {
        reports
            .iter()
            .filter(|report| report.hash == hash)
            .map(|report| report.since)
    };
    let since = if stored.is_none() {
        times().min()
    } else {
        times().max()
    };
    let Some(since) = since else {
        return Reconcile::NotOurs;
    };
    let since: Timestamp = since;
    Reconcile::Open {
        was: stored.map(|stored| stored.hash.clone()),
        stored: Box::new(StoredDefinition {
            definition: mine.clone(),
            hash,
            since,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::agenda::testing::definition;

    fn report(definition: &Definition, since: i64) -> JobReport {
        JobReport {
            hash: definition.hash(),
            since: Timestamp::from_millis(since),
        }
    }

    fn stored(definition: &Definition) -> StoredDefinition {
        let hash = definition.hash();
        StoredDefinition {
            definition: definition.clone(),
            hash,
            since: Timestamp::EPOCH,
        }
    }

    fn opened_since(reconcile: &Reconcile) -> Option<i64> {
        match reconcile {
            Reconcile::Open { stored, .. } => Some(stored.since.as_millis()),
            _ => None,
        }
    }

    #[test]
    fn a_new_job_starts_with_the_first_report() {
        let job = definition("0 1 * * *");
        let answer = reconcile(
            None,
            Some(&job),
            &[&report(&job, 25_000), &report(&job, 44)],
        );
        assert_eq!(opened_since(&answer), Some(44));
    }

    #[test]
    fn a_changed_job_starts_with_the_last_report() {
        let (old, new) = (definition("0 1 * * *"), definition("0 2 * * *"));
        let mixed = [&report(&old, 1), &report(&new, 7)];
        assert_eq!(
            reconcile(Some(&stored(&old)), Some(&new), &mixed),
            Reconcile::Disagree { definitions: 2 }
        );
        let agreed = [&report(&new, 9), &report(&new, 7)];
        assert_eq!(
            opened_since(&reconcile(Some(&stored(&old)), Some(&new), &agreed)),
            Some(9)
        );
        assert_eq!(
            reconcile(Some(&stored(&new)), Some(&new), &agreed),
            Reconcile::InForce
        );
    }

    #[test]
    fn what_nobody_holds_changes_nothing() {
        let job = definition("0 1 * * *");
        assert_eq!(
            reconcile(Some(&stored(&job)), None, &[]),
            Reconcile::Orphaned
        );
        assert_eq!(
            reconcile(None, None, &[&report(&job, 1)]),
            Reconcile::NotOurs
        );
    }
}
