//! The list of a store's verbs, written down once for everything that stands between a pod and the
//! store: the network, the witness and the mutants.

/// Hands every verb of every role to a macro, as `Role { fn verb(argument: [type], …) -> [answer]; … }`.
/// What is no plain request (`consumer`, `listen`) each layer writes itself.
macro_rules! for_each_verb {
    ($callback:ident) => {
        $callback! {
            Leadership {
                fn campaign(me: [&PodRef], ttl: [Duration]) -> [Campaign];
                fn renew(me: [&TermRef], ttl: [Duration]) -> [Renewal];
                fn resign(me: [&TermRef]) -> [Renewal];
                fn leader() -> [Option<Leader>];
            }
            Pods {
                fn now() -> [Timestamp];
                fn register(me: [&PodRef], started: [Timestamp], report: [&PodReport]) -> [Standing];
                fn report(me: [&PodRef], report: [&PodReport]) -> [Standing];
                fn heartbeat(me: [&PodRef], load: [&PodLoad], window: [Duration]) -> [Standing];
                fn leave(me: [&PodRef]) -> [Standing];
                fn drain(pod: [&PodAddress], by: [&str]) -> [Draining];
                fn forget(term: [&TermRef], pod: [&PodAddress], window: [Duration]) -> [Forgotten];
                fn pods() -> [Vec<Pod>];
            }
            Schedules {
                fn view(cursor: [Option<PageCursor>]) -> [ViewPage];
                fn changes(since: [Option<ViewVersion>]) -> [Changes];
                fn jobs(jobs: [&[JobName]]) -> [Vec<Option<JobView>>];
                fn job(job: [&JobName]) -> [Option<JobView>];
                fn open(term: [&TermRef], job: [&JobName], was: [Option<&DefinitionHash>],
                    stored: [&StoredDefinition]) -> [Opened];
                fn publish(term: [&TermRef], decisions: [&[Decision]]) -> [PublishAnswer];
                fn due_delayed(limit: [usize]) -> [DueDelayed];
                fn promote(term: [&TermRef], moves: [&[(RunId, PodAddress)]]) -> [PromoteAnswer];
                fn explain_delayed(term: [&TermRef], run: [&RunId], why: [&str],
                    look_again_in: [Duration]) -> [()];
                fn submit(submission: [&Submission]) -> [Submitted];
                fn pause(job: [&JobName], by: [&str], why: [&str]) -> [Operated];
                fn resume(job: [&JobName], by: [&str]) -> [Operated];
                fn release(job: [&JobName], by: [&str]) -> [Operated];
                fn set_waiting(term: [&TermRef], job: [&JobName], waiting: [Option<&Waiting>]) -> [()];
                fn retire(term: [&TermRef], job: [&JobName]) -> [Operated];
            }
            Queue {
                fn claiming(me: [&PodRef]) -> [Vec<Taken>];
                fn claim(claim: [&Claim]) -> [Claimed];
                fn skip(me: [&PodRef], taken: [&Taken], why: [&str]) -> [Moved];
                fn park(me: [&PodRef], taken: [&Taken], queue_max: [u32]) -> [Parked];
                fn hand_back(back: [&HandBack]) -> [Moved];
            }
            Runs {
                fn extend(me: [&PodRef], attempts: [&[AttemptRef]], lock_ttl: [Duration])
                    -> [Vec<Extension>];
                fn save_checkpoint(save: [&SaveCheckpoint]) -> [Saved];
                fn get_state(job: [&JobName], key: [&str]) -> [Option<Vec<u8>>];
                fn set_state(attempt: [&AttemptRef], write: [&StateWrite], limit: [u32]) -> [Written];
                fn append_log(attempt: [&AttemptRef], lines: [&[LogLine]], max_lines: [u32]) -> [Written];
                fn report_progress(attempt: [&AttemptRef], progress: [&Progress]) -> [Written];
                fn finish(finish: [&Finish]) -> [Finished];
                fn cancel(run: [&RunId], by: [&str], retention: [Retention]) -> [Cancelled];
            }
            Recovery {
                fn scheduled(cursor: [Option<PageCursor>]) -> [Page<ScheduledEntry>];
                fn running(cursor: [Option<PageCursor>]) -> [Page<RunningEntry>];
                fn locks(jobs: [&[JobName]]) -> [Vec<Option<LockHolder>>];
                fn recoveries(runs: [&[RunId]]) -> [Vec<u32>];
                fn republish(term: [&TermRef], run: [&RunId], seen: [Seen], to: [&PodAddress],
                    why: [&str], counted: [bool]) -> [Republished];
                fn lose(term: [&TermRef], run: [&RunId], seen: [Seen], loss: [&Loss]) -> [Losing];
                fn began(runs: [&[RunId]]) -> [Vec<Option<Timestamp>>];
                fn give_up(term: [&TermRef], run: [&RunId], loss: [&Loss]) -> [Losing];
                fn bury(term: [&TermRef], register: [Register], id: [&EntryId], retention: [Retention])
                    -> [bool];
            }
            Inspect {
                fn run(run: [&RunId]) -> [Option<RunRecord>];
                fn runs(job: [&JobName], limit: [usize]) -> [Vec<RunRecord>];
                fn delayed(run: [&RunId]) -> [Option<DelayedEntry>];
                fn gaps(job: [&JobName], limit: [usize]) -> [Vec<Gap>];
                fn log(run: [&RunId], after: [Option<&str>], limit: [usize]) -> [LogPage];
                fn execution_log(after: [Option<&str>], limit: [usize]) -> [Vec<ExecutionEvent>];
                fn checkpoint(run: [&RunId]) -> [Option<Checkpoint>];
                fn checkpoints(run: [&RunId]) -> [Vec<Checkpoint>];
                fn rewind_checkpoint(run: [&RunId], seq: [u64], by: [&str]) -> [Rewound];
                fn quarantined() -> [Vec<(JobName, Hold)>];
                fn clear_checkpoint(run: [&RunId], by: [&str]) -> [Cleared];
                fn warnings() -> [Vec<String>];
                fn counts() -> [Counts];
            }
            Control {
                fn wake(wake: [&Wake]) -> [()];
            }
        }
    };
}

/// What the signatures of the verbs name.
pub(crate) mod words {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::time::Duration;

    pub(crate) use async_trait::async_trait;
    pub(crate) use tokio::sync::mpsc;
    pub(crate) use wasmcron_core::ids::{DefinitionHash, JobName, PodAddress, PodRef, RunId};
    pub(crate) use wasmcron_core::job::StoredDefinition;
    pub(crate) use wasmcron_core::run::{Checkpoint, Progress, RunRecord};
    pub(crate) use wasmcron_core::time::Timestamp;
    pub(crate) use wasmcron_core::view::{
        DelayedEntry, Gap, Hold, JobView, Leader, LockHolder, Pod, PodLoad, PodReport,
        RunningEntry, ScheduledEntry, Waiting,
    };
    pub(crate) use wasmcron_store::control::{Control, Wake};
    pub(crate) use wasmcron_store::inspect::{
        Cleared, Counts, ExecutionEvent, Inspect, LogPage, Rewound,
    };
    pub(crate) use wasmcron_store::leadership::{Campaign, Leadership, Renewal, TermRef};
    pub(crate) use wasmcron_store::page::PageCursor;
    pub(crate) use wasmcron_store::pods::{Draining, Forgotten, Pods, Standing};
    pub(crate) use wasmcron_store::queue::{
        Claim, Claimed, Consumer, HandBack, Moved, Parked, Queue, Taken,
    };
    pub(crate) use wasmcron_store::recovery::{
        EntryId, Losing, Loss, Page, Recovery, Register, Republished, Seen,
    };
    pub(crate) use wasmcron_store::runs::{
        AttemptRef, Cancelled, Extension, Finish, Finished, LogLine, Retention, Runs,
        SaveCheckpoint, Saved, StateWrite, Written,
    };
    pub(crate) use wasmcron_store::schedule::{
        Changes, Decision, DueDelayed, Opened, Operated, PromoteAnswer, PublishAnswer, Schedules,
        Submission, Submitted, ViewPage, ViewVersion,
    };
    pub(crate) use wasmcron_store::{Result, Store};
}
