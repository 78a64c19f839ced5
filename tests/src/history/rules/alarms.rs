//! Where nothing failed, nobody is taken for dead.

use crate::history::{Event, History, Kind, Rule, Span, Violation};

/// Only for a history without faults; what comes after a leader that resigned belongs to the end.
pub(in crate::history) fn check(history: &History) -> Vec<Violation> {
    if !history.faults.is_empty() {
        return Vec::new();
    }
    let resigned = |event: &&Event| {
        !matches!(event.kind, Kind::Deposed { .. }) || !event.text.contains("leader.resigned")
    };
    let lived = history.events.iter().take_while(resigned);
    let mut terms = 0;
    let mut violations = Vec::new();
    for event in lived {
        let is_false = match &event.kind {
            Kind::Won { .. } => {
                terms += 1;
                terms > 1
            }
            Kind::Led { recovered, .. } => *recovered,
            Kind::HandedBack { fence, .. } => fence.is_some(),
            Kind::Deposed { .. } | Kind::Lost { .. } | Kind::Fenced { .. } => true,
            _ => false,
        };
        if is_false {
            let span = Span {
                from: event.at,
                until: event.at,
            };
            let text = format!("{}: {}, and nothing had failed", event.pod, event.text);
            violations.push(Violation::of_span(history, Rule::NoFalseAlarm, span, text));
        }
    }
    violations
}
