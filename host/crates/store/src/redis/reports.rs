//! What pods say of themselves, read once for each version of it.
//!
//! A report names every job file of its pod: with 100,000 of them it is megabytes that the leader
//! would fetch and decode several times a second. Its digest is a few bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use wasmcron_core::ids::PodAddress;
use wasmcron_core::view::PodReport;

use super::RedisStore;
use super::codec::texts;
use crate::error::Result;

/// Which report: by the session that made it and its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    session: String,
    digest: String,
}

impl Version {
    /// None while a pod has no session or said nothing.
    pub(super) fn of(session: Option<&str>, digest: Option<&str>) -> Option<Version> {
        Some(Version {
            session: session?.to_owned(),
            digest: digest?.to_owned(),
        })
    }
}

/// The latest report read of each pod; none inside for one that does not decode.
type Known = HashMap<PodAddress, (Version, Option<Arc<PodReport>>)>;

/// Reports that were read.
#[derive(Default)]
pub(super) struct Reports(Mutex<Known>);

impl Reports {
    fn get(&self, address: &PodAddress, version: &Version) -> Option<Option<Arc<PodReport>>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, report) = known.get(address)?;
        (kept == version).then(|| report.clone())
    }

    /// Keeps what a reading of all pods found, and nothing of pods that are gone.
    fn replace(&self, known: Known) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

impl RedisStore {
    /// The reports of all pods, given the version that each has now; in order.
    pub(super) async fn reports_of(
        &self,
        versions: &[(PodAddress, Option<Version>)],
    ) -> Result<Vec<Option<Arc<PodReport>>>> {
        let mut known = Known::with_capacity(versions.len());
        let mut unread = Vec::new();
        for (address, version) in versions {
            let Some(version) = version else { continue };
            match self.reports.get(address, version) {
                Some(report) => {
                    known.insert(address.clone(), (version.clone(), report));
                }
                None => unread.push(address),
            }
        }
        if !unread.is_empty() {
            let mut pipe = redis::pipe();
            for address in &unread {
                pipe.cmd("HMGET")
                    .arg(self.keys.pod(address))
                    .arg(&["session", "digest", "report"]);
            }
            let answers = self.pipeline("pods", &pipe).await?;
            for (address, said) in unread.into_iter().zip(&answers) {
                let said = texts(said);
                let field = |at: usize| said.get(at).and_then(Option::as_deref);
                // Both may be newer than what the caller saw; they belong together.
                let (Some(version), Some(json)) = (Version::of(field(0), field(1)), field(2))
                else {
                    continue;
                };
                let report = match serde_json::from_str(json) {
                    Ok(report) => Some(Arc::new(report)),
                    Err(error) => {
                        tracing::warn!(pod = %address, %error, "a pod's report does not decode");
                        None
                    }
                };
                known.insert(address.clone(), (version, report));
            }
        }
        let of = |address: &PodAddress| known.get(address).and_then(|(_, report)| report.clone());
        let reports = versions.iter().map(|(address, _)| of(address)).collect();
        self.reports.replace(known);
        Ok(reports)
    }
}
