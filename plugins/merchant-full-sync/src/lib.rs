//! A full sync as a resumable state machine.
//!
//! It reads a paged HTTP source from the beginning to the end, writes each page into a fresh index
//! of the target, verifies count and checksum, puts the index in service by switching an alias, and
//! removes the indexes that are not in service. Readers of the alias see the old data or the new,
//! never a mixture.
//!
//! Each step has at most one effect that matters and ends with a checkpoint that was acknowledged:
//! a killed run goes on with the page that was being written. Writing that page again is harmless,
//! since index name and document ids follow from run and row. Every write carries the attempt's
//! fence, so that the target refuses one that was delayed until a later attempt had begun.
//!
//! - [`progress`]: what a checkpoint holds, and every decision, as pure functions;
//! - [`source`] and [`target`]: the two sides over HTTP;
//! - this file: the loop.

mod checksum;
mod client;
mod progress;
mod source;
mod target;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;
use wasmcron_guest::log::{self, Level};
use wasmcron_guest::{Context, Failure, Job, Metadata, Outcome, Want};

use progress::{PageStep, Phase, Sync, Verdict};
use source::{Answer, Source};
use target::{Created, Target, Written};

/// Parameters of the job.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// URL of the paged source; it gets the queries `limit` and `cursor`.
    source: String,
    /// URL of the target.
    target: String,
    /// The alias that readers of the target use: lower-case letters, digits and hyphens.
    #[serde(default = "default_alias")]
    alias: String,
    /// Rows a page and a bulk write.
    #[serde(default = "default_page_size")]
    #[schemars(range(min = 1, max = 1000))]
    page_size: u32,
    /// With fewer rows than this the alias is not switched: an empty answer of the source shall not
    /// empty the target.
    #[serde(default = "default_min_rows")]
    min_rows: u64,
}

fn default_alias() -> String {
    "merchants".to_owned()
}

fn default_page_size() -> u32 {
    200
}

fn default_min_rows() -> u64 {
    1
}

impl Params {
    fn check(&self) -> Result<(), Failure> {
        if !(1..=1000).contains(&self.page_size) {
            return Err(Failure::fatal(format!(
                "parameter `page_size`: {}; 1 to 1000 are accepted",
                self.page_size
            )));
        }
        // A dot separates alias and run in the names of indexes: no alias may contain one, else
        // the clean-up of one alias would take the indexes of another.
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.alias.is_empty() || !self.alias.chars().all(plain) {
            return Err(Failure::fatal(format!(
                "parameter `alias`: `{}`; lower-case letters, digits and hyphens are accepted",
                self.alias
            )));
        }
        Ok(())
    }
}

/// What a step of the loop comes to.
enum Step {
    Next(Sync),
    Finished(String),
}

struct MerchantFullSync;

impl Job for MerchantFullSync {
    type Params = Params;
    type Checkpoint = Sync;
    const CHECKPOINT_SCHEMA: u32 = 1;

    fn describe(metadata: Metadata) -> Metadata {
        metadata
            .parameters::<Params>()
            .want(Want::Http("param:source".to_owned()))
            .want(Want::Http("param:target".to_owned()))
    }

    fn run(ctx: &mut Context<Self>, params: Params) -> Result<Outcome, Failure> {
        params.check()?;
        let source = Source::new(&params.source, params.page_size, ctx.call());
        let target = Target::new(&params.target, &params.alias, ctx.call());
        let mut cp = ctx.checkpointer().every(1);
        let mut sync = cp.load()?.unwrap_or_default();
        loop {
            if let Some(reason) = ctx.should_stop() {
                return cp.stop(reason, &sync);
            }
            let (done, total, message) = sync.report();
            ctx.progress(done, total, &message);
            match step(&source, &target, &sync, params.min_rows)? {
                Step::Next(next) => {
                    cp.record(&next)?;
                    sync = next;
                }
                Step::Finished(summary) => return Ok(Outcome::done(summary)),
            }
        }
    }
}

wasmcron_guest::export!(MerchantFullSync);

/// Makes the effect of the current phase and says what comes next.
fn step(source: &Source, target: &Target, sync: &Sync, min_rows: u64) -> Result<Step, Failure> {
    let index = target.index(sync.scan);
    let next = match &sync.phase {
        Phase::Create => match target.create_empty(&index)? {
            Created::Empty => sync.created(),
            Created::InService => sync.next_index(),
        },
        Phase::Scan(scan) => match source.page(scan.cursor.as_deref())? {
            Answer::Changed(reason) => warned(sync.source_changed(&reason)?, &reason),
            Answer::Page(page) => match sync.page(scan, &page)? {
                PageStep::Changed(reason) => warned(sync.source_changed(&reason)?, &reason),
                PageStep::Write { rows, next } => match target.write(&index, rows)? {
                    Written::All => next,
                    Written::NoIndex => {
                        let reason = format!("index {index} is gone");
                        warned(sync.mismatched(&reason)?, &reason)
                    }
                },
            },
        },
        Phase::Verify(scanned) => match sync.verified(scanned, &target.stats(&index)?, min_rows)? {
            Verdict::Matches(next) => next,
            Verdict::Differs(reason) => warned(sync.mismatched(&reason)?, &reason),
        },
        Phase::Switch(scanned) => {
            target.switch(&index)?;
            sync.switched(scanned)
        }
        Phase::CleanUp(scanned) => {
            let removed = target.remove_others(&index)?;
            return Ok(Step::Finished(format!(
                "{} rows in {index}, scan {}, {removed} old indexes removed",
                scanned.rows, sync.scan
            )));
        }
    };
    Ok(Step::Next(next))
}

/// Tells the operator why the scan begins again.
fn warned(next: Sync, reason: &str) -> Sync {
    let fields: [(&str, &dyn std::fmt::Display); 2] = [("reason", &reason), ("scan", &next.scan)];
    log::with_fields(Level::Warn, "scanning from the beginning", &fields);
    next
}
