//! What ends a quarantine by itself.

use crate::ids::Digest;
use crate::job::Definition;
use crate::view::{Hold, Pod};

/// Whether the plugin version that was taken for the cause is gone: some live pod can run the job's
/// plugin, and none would run that version. A quarantine of which no version is known waits for a
/// person.
#[must_use]
pub fn is_over(hold: &Hold, job: &Definition, live: &[Pod]) -> bool {
    let Some(held) = &hold.digest else {
        return false;
    };
    let served = |pod: &Pod| -> Option<Digest> {
        let report = pod.report.as_ref()?;
        report.plugins.get(&job.plugin).cloned()
    };
    let would_run: Vec<Digest> = match &job.digest {
        Some(pinned) => vec![pinned.clone()],
        None => live.iter().filter_map(served).collect(),
    };
    !would_run.is_empty() && !would_run.contains(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::agenda::testing::definition;
    use crate::decide::publish::testing::pod;
    use crate::time::Timestamp;

    #[test]
    fn another_version_on_every_pod_ends_it() {
        let mut job = definition("@daily");
        let hold = |digest: Option<&[u8]>| Hold {
            by: "wasmcron".into(),
            at: Timestamp::EPOCH,
            why: "it killed its pods".into(),
            digest: digest.map(Digest::of),
        };
        // Pods of these tests serve the plugin `p` at `p`.
        let pods = [pod("a", Timestamp::EPOCH), pod("b", Timestamp::EPOCH)];
        assert!(!is_over(&hold(Some(b"p")), &job, &pods));
        assert!(is_over(&hold(Some(b"older")), &job, &pods));
        assert!(
            !is_over(&hold(Some(b"older")), &job, &[]),
            "nobody serves it"
        );
        assert!(!is_over(&hold(None), &job, &pods), "a person has to say so");
        job.digest = Some(Digest::of(b"older"));
        assert!(!is_over(&hold(Some(b"older")), &job, &pods), "it is pinned");
    }
}
