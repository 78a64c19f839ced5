//! What goes into queues: firings as they are decided, delayed runs as they become due.

use std::collections::HashMap;

use wasmcron_core::ids::{PodAddress, RunId};
use wasmcron_core::time::Timestamp;

use super::RedisStore;
use super::codec::{Answer, bar_free, task_text};
use super::script::{Call, Verb};
use crate::error::{Result, StoreError};
use crate::leadership::TermRef;
use crate::schedule::{
    Decision, PAGE_MAX, PUBLISH_MAX, PromoteAnswer, Promoted, PublishAnswer, Published,
};

/// Numbers pods in the order in which they first occur, and puts their keys into a call.
struct Targets<'a> {
    numbers: HashMap<&'a PodAddress, usize>,
    order: Vec<&'a PodAddress>,
}

impl<'a> Targets<'a> {
    fn of(pods: impl Iterator<Item = &'a PodAddress>) -> Targets<'a> {
        let mut targets = Targets {
            numbers: HashMap::new(),
            order: Vec::new(),
        };
        for pod in pods {
            if !targets.numbers.contains_key(pod) {
                targets.order.push(pod);
                targets.numbers.insert(pod, targets.order.len());
            }
        }
        targets
    }

    fn number(&self, pod: &PodAddress) -> usize {
        self.numbers.get(pod).copied().unwrap_or(0)
    }

    fn add_to(&self, store: &RedisStore, call: &mut Call) {
        call.push(self.order.len());
        for pod in &self.order {
            call.push_key(store.keys.pod(pod));
            call.push_key(store.keys.tasks(pod));
            call.push(pod.as_str());
        }
    }
}

fn within(what: &'static str, found: usize, limit: usize) -> Result<()> {
    if found <= limit {
        Ok(())
    } else {
        Err(StoreError::TooLarge { what, found, limit })
    }
}

fn published_of(answer: &Answer, at: usize) -> Result<Published> {
    let said = answer.text(at)?;
    let (word, cursor) = said.split_once('|').unwrap_or((said, "0"));
    let cursor = Timestamp::from_millis(cursor.parse().map_err(|_| answer.strange(said))?);
    Ok(match word {
        "published" => Published::Published,
        "deduped" => Published::Deduped { cursor },
        "exists" => Published::Exists,
        "held" => Published::Held { cursor },
        "no-pod" => Published::NoPod,
        "paused" => Published::Paused,
        "quarantined" => Published::Quarantined,
        "early" => Published::Early,
        _ => return Err(answer.strange(said)),
    })
}

/// Whether the answer is that the caller leads no more; otherwise it must have `len` parts.
fn not_leader(answer: &Answer, len: usize) -> Result<bool> {
    if answer.len() == 1 && answer.word()? == "not-leader" {
        return Ok(true);
    }
    if answer.len() == len {
        Ok(false)
    } else {
        Err(answer.strange("wrong number of answers"))
    }
}

impl RedisStore {
    pub(super) async fn publish_all(
        &self,
        term: &TermRef,
        decisions: &[Decision],
    ) -> Result<PublishAnswer> {
        within("decisions in one publish", decisions.len(), PUBLISH_MAX)?;
        let targets = Targets::of(decisions.iter().filter_map(|decision| match decision {
            Decision::Fire { to, .. } => Some(to),
            Decision::Gap { .. } => None,
        }));
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.paused(),
            self.keys.quarantined(),
            self.keys.cursor(),
            self.keys.scheduled(),
            self.keys.delivery(),
            self.keys.subscribers(),
            self.keys.execution_log(),
        ];
        let mut call = Call::new(Verb::Publish, keys).term(term);
        targets.add_to(self, &mut call);
        for decision in decisions {
            self.push_decision(&mut call, &targets, decision)?;
        }
        let answer = self.call(call).await?;
        if not_leader(&answer, decisions.len())? {
            return Ok(PublishAnswer::NotLeader);
        }
        let answers = (0..decisions.len()).map(|at| published_of(&answer, at));
        Ok(PublishAnswer::Answers(answers.collect::<Result<_>>()?))
    }

    fn push_decision(
        &self,
        call: &mut Call,
        targets: &Targets<'_>,
        decision: &Decision,
    ) -> Result<()> {
        match decision {
            Decision::Fire { task, to, after } => {
                call.push_key(self.keys.record(&task.run));
                call.push_key(self.keys.runs(&task.job));
                call.push("F");
                call.push(task.job.as_str());
                call.push(task.nominal);
                call.push(*after);
                call.push(task.run.as_str());
                call.push(targets.number(to));
                call.push(task_text(task)?);
            }
            Decision::Gap { job, gap, after } => {
                let first = RunId::nominal(job, gap.from);
                call.push_key(self.keys.gaps(job));
                call.push_key(self.keys.record(&first));
                call.push("G");
                call.push(job.as_str());
                call.push(gap.to);
                call.push(*after);
                call.push(gap.from);
                call.push(gap.count);
                call.push(bar_free(&gap.why));
                call.push(if gap.why == "misfire" {
                    "firing.missed"
                } else {
                    "firing.skipped"
                });
                call.push(first.as_str());
            }
        }
        Ok(())
    }

    pub(super) async fn promote_all(
        &self,
        term: &TermRef,
        moves: &[(RunId, PodAddress)],
    ) -> Result<PromoteAnswer> {
        within("moves in one promote", moves.len(), PAGE_MAX)?;
        let targets = Targets::of(moves.iter().map(|(_, to)| to));
        let keys = vec![
            self.keys.leader(),
            self.keys.term(),
            self.keys.delayed(),
            self.keys.due(),
            self.keys.scheduled(),
            self.keys.delivery(),
            self.keys.subscribers(),
            self.keys.execution_log(),
        ];
        let mut call = Call::new(Verb::Promote, keys).term(term);
        targets.add_to(self, &mut call);
        for (run, to) in moves {
            call.push(run.job().as_str());
            call.push(run.as_str());
            call.push(targets.number(to));
        }
        let answer = self.call(call).await?;
        if not_leader(&answer, moves.len())? {
            return Ok(PromoteAnswer::NotLeader);
        }
        let one = |at: usize| match answer.text(at)? {
            "promoted" => Ok(Promoted::Promoted),
            "changed" => Ok(Promoted::Changed),
            "no-pod" => Ok(Promoted::NoPod),
            other => Err(answer.strange(other)),
        };
        Ok(PromoteAnswer::Answers(
            (0..moves.len()).map(one).collect::<Result<_>>()?,
        ))
    }
}
