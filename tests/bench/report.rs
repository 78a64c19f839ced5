//! The one table: each figure beside the raw one of the same run and its goal.

use serde::Serialize;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// In what.
    pub unit: &'static str,
    /// The product's figure.
    pub ours: f64,
    /// What the store does at most, measured in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<f64>,
    /// What the figure shall be, for people.
    pub goal: String,
    /// Whether it is; none where there is no goal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Figure {
    /// A figure without raw counterpart and goal.
    pub fn new(what: impl Into<String>, unit: &'static str, ours: f64) -> Figure {
        Figure {
            what: what.into(),
            unit,
            ours,
            raw: None,
            goal: String::new(),
            met: None,
            note: String::new(),
        }
    }

    /// Beside what the store does at most.
    pub fn raw(mut self, raw: f64) -> Figure {
        self.raw = Some(raw);
        self
    }

    /// At most this much.
    pub fn at_most(mut self, goal: f64) -> Figure {
        self.goal = format!("≤ {}", number(goal));
        self.met = Some(self.ours <= goal);
        self
    }

    /// At least this much.
    pub fn at_least(mut self, goal: f64) -> Figure {
        self.goal = format!("≥ {}", number(goal));
        self.met = Some(self.ours >= goal);
        self
    }

    /// At least this share of the raw figure, which has to be given before.
    pub fn at_least_of_raw(mut self, share: f64) -> Figure {
        let goal = format!("≥ {share} × raw");
        self.goal = if self.goal.is_empty() {
            goal
        } else {
            format!("{}, {goal}", self.goal)
        };
        let enough = self.raw.is_some_and(|raw| self.ours >= share * raw);
        self.met = Some(self.met.unwrap_or(true) && enough);
        self
    }

    /// With a remark.
    pub fn note(mut self, note: impl Into<String>) -> Figure {
        self.note = note.into();
        self
    }

    /// Ours by the raw figure.
    fn ratio(&self) -> Option<f64> {
        self.raw.filter(|raw| *raw > 0.0).map(|raw| self.ours / raw)
    }
}

/// A figure with as many digits as it deserves.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1_000.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Prints all figures as one table.
pub fn print(figures: &[Figure]) {
    let head = ["figure", "ours", "raw", "ours/raw", "goal", "", ""].map(str::to_owned);
    let rows: Vec<[String; 7]> = figures.iter().map(cells).collect();
    let all = || std::iter::once(&head).chain(&rows);
    let width = |column: usize| {
        all()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for (at, row) in all().enumerate() {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        println!("{}", line.join("  ").trim_end());
        if at == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            println!("{}", rule.join("  ").trim_end());
        }
    }
}

fn cells(figure: &Figure) -> [String; 7] {
    let met = match figure.met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    [
        format!("{}, {}", figure.what, figure.unit),
        number(figure.ours),
        figure.raw.map(number).unwrap_or_default(),
        figure.ratio().map(number).unwrap_or_default(),
        figure.goal.clone(),
        met.to_owned(),
        figure.note.clone(),
    ]
}
