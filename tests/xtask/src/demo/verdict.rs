//! Whether the story held: told by the target alone.

use std::fmt;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::stage::Stage;

/// What the target shows.
pub struct Verdict {
    rows: u64,
    found: u64,
    checksums_agree: bool,
    rewritten: u64,
    page_size: u64,
    requests: usize,
    attempts: Vec<(u64, u64)>,
}

/// Compares the index in service with the source, and counts what was written twice.
pub fn reach(stage: &Stage, run: &str, rows: u64) -> Result<Verdict> {
    let alias = stage.target_get("/aliases/merchants")?;
    let index = alias["index"]
        .as_str()
        .context("no index is in service")?
        .to_owned();
    let stats = stage.target_get(&format!("/indexes/{index}/_stats"))?;
    let source = stage.source_version()?;
    let dump = stage.target_dump(false)?;
    let entries = dump["log"]["entries"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let of_run =
        |entry: &&Value| entry["run"] == *run && entry["status"].as_u64().is_some_and(|s| s < 300);
    let bulk = |entry: &&Value| {
        entry["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("_bulk"))
    };
    let writes: Vec<_> = entries.iter().filter(of_run).filter(bulk).collect();
    let mut attempts: Vec<(u64, u64)> = Vec::new();
    for write in &writes {
        let attempt = write["attempt"].as_u64().unwrap_or(0);
        let rows = write["rows"].as_u64().unwrap_or(0);
        match attempts.iter_mut().find(|(number, _)| *number == attempt) {
            Some((_, sum)) => *sum += rows,
            None => attempts.push((attempt, rows)),
        }
    }
    Ok(Verdict {
        rows,
        found: stats["count"].as_u64().unwrap_or(0),
        checksums_agree: stats["checksum"] == source["checksum"],
        rewritten: writes
            .iter()
            .map(|write| write["rewritten"].as_u64().unwrap_or(0))
            .sum(),
        page_size: 200,
        requests: writes.len(),
        attempts,
    })
}

impl Verdict {
    /// An error if the story did not hold.
    pub fn check(&self, run: &Value) -> Result<()> {
        if run["state"] != "succeeded" {
            bail!("the sync ended {}: {}", run["state"], run["why"]);
        }
        if self.found != self.rows || !self.checksums_agree {
            bail!("the target does not equal the source");
        }
        if self.attempts.len() < 2 {
            bail!("the sync was not resumed by another attempt");
        }
        // The page under way when the pod died may be written again, and no other.
        if self.rewritten > self.page_size {
            bail!(
                "{} rows were written twice, more than one page",
                self.rewritten
            );
        }
        println!("\nThe target equals the source.");
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "What the target says:")?;
        writeln!(
            f,
            "  rows in service             {} of {}",
            self.found, self.rows
        )?;
        writeln!(
            f,
            "  checksum equals the source  {}",
            if self.checksums_agree { "yes" } else { "NO" }
        )?;
        writeln!(f, "  bulk writes                 {}", self.requests)?;
        for (attempt, rows) in &self.attempts {
            writeln!(f, "  rows by attempt {attempt}           {rows}")?;
        }
        write!(
            f,
            "  rows written twice          {} (at most one page of {})",
            self.rewritten, self.page_size
        )
    }
}
