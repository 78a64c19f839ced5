//! Shows events: lines, with colours and bars on a terminal; or JSON, one object a line.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::event::{Event, Tone};
use crate::cli::text;

/// Where there is no bar, progress of a run is told this often at most.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// How often a bar moves although nothing was reported.
const TICK: Duration = Duration::from_millis(120);
/// Steps of a bar.
const STEPS: u32 = 1_000;
/// Width of the column of job names.
const NAMES: usize = 16;
/// A run that does not say how much there is to do.
const SPINNER: &str = "{prefix:16} {spinner} {elapsed} {wide_msg}";
/// A run that does.
const BAR: &str = "{prefix:16} [{bar:30}] {elapsed} {wide_msg}";

/// Where events are shown. Clones show at the same place.
#[derive(Clone)]
pub struct Screen(Arc<Inner>);

struct Inner {
    form: Form,
    told: Mutex<BTreeMap<String, Instant>>,
}

enum Form {
    Json,
    Plain,
    Terminal {
        colours: bool,
        multi: MultiProgress,
        bars: Mutex<BTreeMap<String, ProgressBar>>,
    },
}

impl Screen {
    /// Standard output: JSON if asked for, bars and colours if it is a terminal that knows them.
    pub fn new(json: bool) -> Screen {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        let form = if json {
            Form::Json
        } else if io::stdout().is_terminal() && !dumb {
            Form::Terminal {
                colours: set("NO_COLOR").is_none(),
                multi: MultiProgress::with_draw_target(ProgressDrawTarget::stdout()),
                bars: Mutex::default(),
            }
        } else {
            Form::Plain
        };
        Screen(Arc::new(Inner {
            form,
            told: Mutex::default(),
        }))
    }

    /// Whether lines carry colours.
    pub fn colours(&self) -> bool {
        matches!(self.0.form, Form::Terminal { colours: true, .. })
    }

    /// Shows an event.
    pub fn show(&self, event: &Event) {
        match &self.0.form {
            Form::Json => {
                if let Ok(line) = serde_json::to_string(event) {
                    print(&format!("{line}\n"));
                }
            }
            Form::Plain => {
                if self.is_news(event) {
                    print(&self.text(event));
                }
            }
            Form::Terminal { multi, bars, .. } => {
                let mut bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
                if move_bar(multi, &mut bars, event) {
                    multi.suspend(|| print(&self.text(event)));
                }
            }
        }
    }

    /// Shows a line that is about no run, to people only.
    pub fn say(&self, line: &str) {
        match &self.0.form {
            Form::Json => {}
            Form::Plain => print(&format!("{line}\n")),
            Form::Terminal { multi, .. } => multi.suspend(|| print(&format!("{line}\n"))),
        }
    }

    /// Takes all bars away.
    pub fn end(&self) {
        if let Form::Terminal { bars, .. } = &self.0.form {
            let mut bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
            for bar in std::mem::take(&mut *bars).into_values() {
                bar.finish_and_clear();
            }
        }
    }

    /// False for progress that follows other progress of the run too soon.
    fn is_news(&self, event: &Event) -> bool {
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Progress { run, .. } => {
                let soon = told
                    .get(run)
                    .is_some_and(|last| last.elapsed() < PROGRESS_EVERY);
                if !soon {
                    told.insert(run.clone(), Instant::now());
                }
                !soon
            }
            Event::Ended { run, .. } => {
                told.remove(run);
                true
            }
            _ => true,
        }
    }

    fn text(&self, event: &Event) -> String {
        let paint = |code: &str, text: &str| {
            if self.colours() && !text.is_empty() {
                format!("\u{1b}[{code}m{text}\u{1b}[0m")
            } else {
                text.to_owned()
            }
        };
        let mut all = String::new();
        for (job, tone, line) in event.lines() {
            let name = if job.is_empty() {
                String::new()
            } else {
                format!("{} ", paint("36", &format!("{job:<NAMES$}")))
            };
            let code = match tone {
                Tone::Plain => "",
                Tone::Dim => "2",
                Tone::Good => "32",
                Tone::Odd => "33",
                Tone::Bad => "31",
            };
            // What a guest says must not reach the terminal as a command, nor look like another line.
            let line = text::plain(&line).replace('\n', "\n    ");
            let line = if code.is_empty() {
                line
            } else {
                paint(code, &line)
            };
            all.push_str(&format!("{name}{line}\n"));
        }
        all
    }
}

/// Moves the bar of a run; true if the event is to be told in a line as well.
fn move_bar(
    multi: &MultiProgress,
    bars: &mut BTreeMap<String, ProgressBar>,
    event: &Event,
) -> bool {
    match event {
        Event::Started { run, .. } => {
            let bar = multi.add(ProgressBar::new_spinner());
            set_style(&bar, SPINNER);
            bar.set_prefix(event.job().to_owned());
            bar.enable_steady_tick(TICK);
            if let Some(old) = bars.insert(run.clone(), bar) {
                old.finish_and_clear();
            }
            true
        }
        Event::Progress {
            run, done, total, ..
        } => {
            let Some(bar) = bars.get(run) else {
                return false;
            };
            if let Some(total) = total.filter(|total| *total > 0.0) {
                set_style(bar, BAR);
                bar.set_length(STEPS.into());
                bar.set_position(step(done / total));
            }
            bar.set_message(event.standing());
            false
        }
        Event::Waits { run, .. } | Event::Ended { run, .. } => {
            if let Some(bar) = bars.remove(run) {
                bar.finish_and_clear();
            }
            true
        }
        _ => true,
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    // Without its template a bar looks otherwise, and works all the same.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

/// The step of a bar at which so much is done.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it lies between 0 and the number of steps"
)]
fn step(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * f64::from(STEPS)) as u64
}

fn print(text: &str) {
    let mut out = io::stdout().lock();
    // Nobody may read any more; the pod goes on.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The pod's own log goes to standard error, above the bars.
pub struct LogWriter(Screen);

impl Screen {
    /// A writer for the pod's own log.
    pub fn log_writer(&self) -> LogWriter {
        LogWriter(self.clone())
    }
}

impl io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let write = || io::stderr().lock().write_all(bytes);
        match &self.0.0.form {
            Form::Terminal { multi, .. } => multi.suspend(write)?,
            Form::Json | Form::Plain => write()?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
