//! Whether a pod claims what it took, and what becomes of a claim that met an active run.

use crate::ids::RunId;
use crate::job::{Definition, Overlap};

/// What a pod knows of itself when it looks at a taken task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Attempts it may execute at once.
    pub capacity: u32,
    /// Attempts it executes.
    pub running: u32,
    /// The run that has, or waits to have, the pod to itself.
    pub exclusive: Option<RunId>,
    /// It leaves.
    pub draining: bool,
}

/// What a pod does with a taken task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Claim it now.
    Claim,
    /// Keep it unclaimed, take nothing more, and claim it once nothing else runs here.
    WaitAlone,
    /// Keep it unclaimed until an attempt ends.
    WaitSlot,
    /// Give it back.
    HandBack {
        /// Why, for people.
        why: String,
    },
}

/// Looks at a task that was taken. `job` is the pod's own definition, `plugin_ready` whether it can
/// run the version that the definition asks for.
#[must_use]
pub fn admit(local: &Local, run: &RunId, job: Option<&Definition>, plugin_ready: bool) -> Admit {
    let give_back = |why: String| Admit::HandBack { why };
    if local.draining {
        return give_back("the pod is draining".into());
    }
    let Some(job) = job else {
        return give_back("the pod has no file of this job".into());
    };
    if !plugin_ready {
        return give_back(format!("the pod cannot run the plugin {}", job.plugin));
    }
    match &local.exclusive {
        Some(holder) if holder != run => give_back(format!("the pod is held by {holder}")),
        _ if job.exclusive && local.running > 0 => Admit::WaitAlone,
        _ if local.running >= local.capacity => Admit::WaitSlot,
        _ => Admit::Claim,
    }
}

/// What follows a claim that met another run of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Skip it; the store refuses that for a run that may not be skipped, then park it.
    Skip,
    /// Park it; skip it if as many as may wait already do.
    Park,
    /// Ask for the end of the other run, then park it.
    Replace,
}

/// What follows an overlap.
#[must_use]
pub fn overlap(policy: Overlap) -> Follow {
    match policy {
        Overlap::Skip => Follow::Skip,
        Overlap::Queue => Follow::Park,
        Overlap::Replace => Follow::Replace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::agenda::testing::definition;
    use crate::time::Timestamp;

    fn run(name: &str) -> RunId {
        RunId::nominal(&name.parse().expect("name"), Timestamp::EPOCH)
    }

    #[test]
    fn a_table_of_admissions() {
        let free = Local {
            capacity: 2,
            running: 0,
            exclusive: None,
            draining: false,
        };
        let one = Local {
            running: 1,
            ..free.clone()
        };
        let full = Local {
            running: 2,
            ..free.clone()
        };
        let held = Local {
            exclusive: Some(run("other")),
            ..free.clone()
        };
        let ours = Local {
            exclusive: Some(run("job")),
            ..free.clone()
        };
        let leaving = Local {
            draining: true,
            ..free.clone()
        };
        let plain = definition("@daily");
        let mut alone = plain.clone();
        alone.exclusive = true;
        let table = [
            (&free, Some(&plain), true, "claim"),
            (&one, Some(&plain), true, "claim"),
            (&full, Some(&plain), true, "slot"),
            (&one, Some(&alone), true, "alone"),
            (&free, Some(&alone), true, "claim"),
            (&ours, Some(&alone), true, "claim"),
            (&held, Some(&plain), true, "back"),
            (&leaving, Some(&plain), true, "back"),
            (&free, None, true, "back"),
            (&free, Some(&plain), false, "back"),
        ];
        for (local, job, ready, expected) in table {
            let answer = match admit(local, &run("job"), job, ready) {
                Admit::Claim => "claim",
                Admit::WaitAlone => "alone",
                Admit::WaitSlot => "slot",
                Admit::HandBack { .. } => "back",
            };
            assert_eq!(answer, expected, "{local:?}");
        }
    }
}
