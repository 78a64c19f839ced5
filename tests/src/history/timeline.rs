//! The lines that tell how something came about.

use std::collections::BTreeMap;
use std::time::Duration;

use wasmcron_core::ids::RunId;
use wasmcron_core::time::Timestamp;

use super::{Became, Event, Fault, History, Kind, Span};

/// How much before and after is shown of what leaders did and of faults.
const AROUND: Duration = Duration::from_secs(5);
/// Lines of a timeline; what is longer loses its middle.
const MAX_LINES: usize = 80;
/// First and last effects and saves of an attempt that are shown, each.
const DETAILS: usize = 2;

/// Everything about these runs, with leadership and faults around it.
pub(super) fn of_runs(history: &History, runs: &[&RunId]) -> Vec<String> {
    let named = |run: Option<&RunId>| run.is_some_and(|run| runs.contains(&run));
    let events = history
        .events
        .iter()
        .filter(|event| named(event.kind.run()))
        .map(|event| {
            let detail = match event.kind {
                Kind::Saved { fence, .. } => Some((fence, "saves")),
                _ => None,
            };
            (event.at, format!("{}: {}", event.pod, event.text), detail)
        });
    let effects = history
        .effects
        .iter()
        .filter(|effect| named(Some(&effect.run)))
        .map(|effect| {
            let detail = (effect.became == Became::Applied).then_some((effect.fence, "effects"));
            (effect.at, effect.to_string(), detail)
        });
    let lines = thinned(events.chain(effects).collect());
    let (Some((first, _)), Some((last, _))) = (lines.first(), lines.last()) else {
        return Vec::new();
    };
    let span = Span {
        from: *first - AROUND,
        until: *last + AROUND,
    };
    with_surroundings(history, lines, span)
}

/// Of the effects and saves of an attempt, the first and the last ones say enough.
fn thinned(mut lines: Vec<Detailed>) -> Vec<(Timestamp, String)> {
    lines.sort_by_key(|(at, _, _)| *at);
    let mut left: BTreeMap<Detail, usize> = BTreeMap::new();
    for (_, _, detail) in &lines {
        if let Some(detail) = detail {
            *left.entry(*detail).or_default() += 1;
        }
    }
    let mut seen: BTreeMap<Detail, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for (at, text, detail) in lines {
        let shown = detail.is_none_or(|detail| {
            let (before, after) = (
                seen.entry(detail).or_default(),
                left.entry(detail).or_default(),
            );
            *after -= 1;
            *before += 1;
            *before <= DETAILS || *after < DETAILS
        });
        if shown {
            kept.push((at, text));
        }
    }
    kept
}

/// The fence of an attempt, and what of it.
type Detail = (u64, &'static str);
/// A line; one of many of its kind, or one that is always shown.
type Detailed = (Timestamp, String, Option<Detail>);

/// What leaders did and which faults there were in a stretch of time.
pub(super) fn of_span(history: &History, span: Span) -> Vec<String> {
    let span = Span {
        from: span.from - AROUND,
        until: span.until + AROUND,
    };
    with_surroundings(history, Vec::new(), span)
}

fn with_surroundings(
    history: &History,
    mut lines: Vec<(Timestamp, String)>,
    span: Span,
) -> Vec<String> {
    // Who led when it began, however long before that was won.
    let led = |event: &&Event| matches!(event.kind, Kind::Won { .. }) && event.at < span.from;
    if let Some(event) = history.events.iter().rfind(led) {
        lines.push((event.at, format!("{}: {}", event.pod, event.text)));
    }
    for event in history
        .events
        .iter()
        .filter(|event| span.contains(event.at))
    {
        let leads = matches!(
            event.kind,
            Kind::Won { .. } | Kind::Deposed { .. } | Kind::PodStarted | Kind::PodStopped
        );
        if leads {
            lines.push((event.at, format!("{}: {}", event.pod, event.text)));
        }
    }
    let met = history.faults.iter().filter(|one| one.span.meets(span));
    lines.extend(met.flat_map(told));
    lines.sort_by_key(|(at, _)| *at);
    shortened(lines)
}

fn told(fault: &Fault) -> [(Timestamp, String); 2] {
    [
        (fault.span.from, format!("FAULT {} begins", fault.text)),
        (fault.span.until, format!("FAULT {} is over", fault.text)),
    ]
}

fn line(at: Timestamp, text: &str) -> String {
    format!("{} {text}", at.to_datetime().format("%H:%M:%S%.3f"))
}

/// Every line, for whoever looks for what no rule knows.
pub(super) fn whole(history: &History) -> String {
    let events = history.events.iter();
    let effects = history.effects.iter();
    let mut lines: Vec<(Timestamp, String)> = events
        .map(|event| (event.at, format!("{}: {}", event.pod, event.text)))
        .chain(effects.map(|effect| (effect.at, effect.to_string())))
        .chain(history.faults.iter().flat_map(told))
        .collect();
    lines.sort_by_key(|(at, _)| *at);
    lines.iter().fold(String::new(), |mut whole, (at, text)| {
        whole.push_str(&line(*at, text));
        whole.push('\n');
        whole
    })
}

fn shortened(lines: Vec<(Timestamp, String)>) -> Vec<String> {
    let count = lines.len();
    let half = MAX_LINES / 2;
    let mut shown = Vec::new();
    for (index, (at, text)) in lines.into_iter().enumerate() {
        if count > MAX_LINES && index == half {
            shown.push(format!("… {} lines …", count - MAX_LINES));
        }
        if count <= MAX_LINES || index < half || index >= count - half {
            shown.push(line(at, &text));
        }
    }
    shown
}
