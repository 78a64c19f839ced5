//! `run logs`.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use wasmcron_core::ids::RunId;
use wasmcron_store::Store;
use wasmcron_store::runs::LogLine;

use super::context::Context;
use super::out::{Answer, Failure};
use super::text;
use super::views::LogLineView;

/// What a run logged.
#[derive(Debug, Args)]
pub struct Logs {
    /// Id of the run
    pub run: RunId,
    /// Go on until the run is over; with --json one object a line
    #[arg(short, long)]
    pub follow: bool,
}

/// Lines in one request.
const PAGE: usize = 500;
/// Between two looks at a log that grows.
const PAUSE: Duration = Duration::from_millis(300);
/// Looks in a row that a store may leave unanswered.
const MISSES_MAX: u32 = 100;

/// Prints the log.
pub async fn run(ctx: &Context, verb: &Logs) -> Answer {
    if ctx.store.run(&verb.run).await?.is_none() {
        return Err(Context::unknown_run(&verb.run));
    }
    if verb.follow {
        return follow(ctx, &verb.run).await;
    }
    let lines = read(ctx, &verb.run).await?;
    if ctx.out.json {
        let views: Vec<LogLineView> = lines.iter().map(LogLineView::from).collect();
        return ctx
            .out
            .value(&json!({ "run": verb.run.as_str(), "lines": views }));
    }
    lines.iter().try_for_each(|line| ctx.out.line(human(line)))
}

async fn read(ctx: &Context, run: &RunId) -> Result<Vec<LogLine>, Failure> {
    let (mut lines, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = ctx.store.log(run, after.as_deref(), PAGE).await?;
        lines.extend(page.lines);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(lines),
        }
    }
}

async fn follow(ctx: &Context, run: &RunId) -> Answer {
    let mut place = Place::default();
    let mut misses = 0;
    loop {
        // The run's state is read before its log, so that what it said last is not missed.
        let look = async {
            let over = ctx
                .store
                .run(run)
                .await?
                .is_none_or(|record| record.state.is_ended());
            Ok::<_, Failure>((over, place.next(&*ctx.store, run).await?))
        };
        match look.await {
            Ok((over, lines)) => {
                misses = 0;
                for line in &lines {
                    if ctx.out.json {
                        ctx.out.line(json_line(line)?)?;
                    } else {
                        ctx.out.line(human(line))?;
                    }
                }
                if over && lines.is_empty() {
                    return Ok(());
                }
                if !lines.is_empty() {
                    continue;
                }
            }
            Err(Failure::Store(error)) if error.is_transient() && misses < MISSES_MAX => {
                misses += 1;
            }
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn json_line(line: &LogLine) -> Result<String, Failure> {
    serde_json::to_string(&LogLineView::from(line))
        .map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))
}

/// How far a growing log was read. The store gives positions for full pages only, so within the last
/// page it is the last line seen that tells where to go on.
#[derive(Default)]
pub struct Place {
    after: Option<String>,
    seen: usize,
    last: Option<LogLine>,
}

impl Place {
    /// Lines that were not seen yet.
    pub async fn next(
        &mut self,
        store: &dyn Store,
        run: &RunId,
    ) -> wasmcron_store::Result<Vec<LogLine>> {
        let page = store.log(run, self.after.as_deref(), PAGE).await?;
        let known = self.known(&page.lines);
        let fresh: Vec<LogLine> = page.lines.iter().skip(known).cloned().collect();
        self.last = page.lines.last().cloned().or(self.last.take());
        self.seen = page.lines.len();
        if page.next.is_some() {
            self.after = page.next;
            self.seen = 0;
            self.last = None;
        }
        Ok(fresh)
    }

    /// How many lines of a page were seen. The oldest lines of a long log go, which moves the others.
    fn known(&self, lines: &[LogLine]) -> usize {
        let Some(last) = &self.last else { return 0 };
        if self.seen > 0 && lines.get(self.seen - 1) == Some(last) {
            return self.seen;
        }
        lines
            .iter()
            .rposition(|line| line == last)
            .map_or(0, |at| at + 1)
    }
}

fn human(line: &LogLine) -> String {
    let fields: String = line
        .fields
        .iter()
        .map(|(name, value)| format!(" {name}={value}"))
        .collect();
    text::plain(&format!(
        "{} #{} {:<6} {}{fields}",
        line.at, line.attempt, line.level, line.message
    ))
}

#[cfg(test)]
mod tests {
    use wasmcron_core::time::Timestamp;

    use super::*;

    fn line(n: i64) -> LogLine {
        LogLine {
            at: Timestamp::from_millis(n),
            attempt: 1,
            level: "info".into(),
            message: n.to_string(),
            fields: vec![("k".into(), "\u{1b}v".into())],
        }
    }

    #[test]
    fn a_growing_log_is_read_on_from_the_last_line_seen() {
        let lines: Vec<LogLine> = (1..=5).map(line).collect();
        let place = Place {
            after: None,
            seen: 3,
            last: Some(line(3)),
        };
        assert_eq!(place.known(&lines), 3);
        assert_eq!(place.known(&lines[2..]), 1, "the two oldest lines went");
        assert_eq!(place.known(&lines[3..]), 0, "all seen lines went");
    }

    #[test]
    fn lines_for_people_carry_no_terminal_commands() {
        assert_eq!(
            human(&line(1_000)),
            "1970-01-01T00:00:01Z #1 info   1000 k=\u{fffd}v"
        );
    }
}
