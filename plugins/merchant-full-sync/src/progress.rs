//! How far a sync has come, and what comes next. No function here has an effect.

use serde::{Deserialize, Serialize};
use wasmcron_guest::Failure;

use crate::checksum::Checksum;
use crate::source::{Page, Row};
use crate::target::Stats;

/// So often a run begins again since the source changed under it.
const MAX_SOURCE_CHANGES: u32 = 5;
/// So often a run begins again since the target does not hold what was written.
const MAX_MISMATCHES: u32 = 1;
/// So many pages in a row may bring nothing new.
const MAX_IDLE_PAGES: u32 = 5;

/// The order of the rows: a time that several may share, and the id that tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) updated_at: String,
    pub(crate) id: String,
}

/// The checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sync {
    /// The number of the scan, from 1: each writes an index of its own.
    pub(crate) scan: u32,
    /// So often the source changed under a scan of this run.
    pub(crate) source_changes: u32,
    /// So often verification failed in this run.
    pub(crate) mismatches: u32,
    /// What is being done.
    pub(crate) phase: Phase,
}

impl Default for Sync {
    fn default() -> Self {
        Self {
            scan: 1,
            source_changes: 0,
            mismatches: 0,
            phase: Phase::Create,
        }
    }
}

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// Make an empty index.
    Create,
    /// Read pages and write them.
    Scan(Scan),
    /// Compare what was read with what the target holds.
    Verify(Scan),
    /// Put the index in service.
    Switch(Scan),
    /// Remove the others.
    CleanUp(Scan),
}

/// The pages that were read and written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scan {
    /// The version of the source, once a page said it.
    pub(crate) version: Option<String>,
    /// Where the next page begins; none: at the beginning.
    pub(crate) cursor: Option<String>,
    /// The key of the last row.
    pub(crate) last: Option<Key>,
    /// How many rows.
    pub(crate) rows: u64,
    /// Their checksum.
    pub(crate) checksum: Checksum,
    /// How many the source says there are.
    pub(crate) total: Option<u64>,
    /// So many pages in a row brought nothing new.
    pub(crate) idle_pages: u32,
}

/// What to do with a page.
#[derive(Debug)]
pub(crate) enum PageStep {
    /// Write these rows, then go on; there may be none.
    Write { rows: Vec<Row>, next: Sync },
    /// It belongs to another version of the source, for this reason.
    Changed(String),
}

/// What verification says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The target holds what was written: go on.
    Matches(Sync),
    /// It does not, for this reason.
    Differs(String),
}

impl Sync {
    fn with(&self, phase: Phase) -> Self {
        Self {
            phase,
            ..self.clone()
        }
    }

    /// The index is there and empty.
    pub(crate) fn created(&self) -> Self {
        self.with(Phase::Scan(Scan::default()))
    }

    /// The index cannot be used: take the next name.
    pub(crate) fn next_index(&self) -> Self {
        Self {
            scan: self.scan + 1,
            ..self.with(Phase::Create)
        }
    }

    /// The source changed under the scan: rows may have moved past the cursor in either
    /// direction, so begin again with an index of its own.
    pub(crate) fn source_changed(&self, reason: &str) -> Result<Self, Failure> {
        if self.source_changes >= MAX_SOURCE_CHANGES {
            return Err(Failure::fatal(format!(
                "the source changes faster than it can be read: {reason}, for the {}th time in \
                 this run",
                self.source_changes + 1
            )));
        }
        Ok(Self {
            source_changes: self.source_changes + 1,
            ..self.next_index()
        })
    }

    /// The target does not hold what was written: begin again, but not for ever.
    pub(crate) fn mismatched(&self, reason: &str) -> Result<Self, Failure> {
        if self.mismatches >= MAX_MISMATCHES {
            return Err(Failure::fatal(format!(
                "verification failed again after another scan: {reason}; the alias was not switched"
            )));
        }
        Ok(Self {
            mismatches: self.mismatches + 1,
            ..self.next_index()
        })
    }

    /// A page came.
    ///
    /// A row at or before the last one was read before: a page that is served twice, or overlaps
    /// the one before, counts once. That holds only for a sorted source, so an unsorted page is an
    /// error rather than a loss.
    pub(crate) fn page(&self, scan: &Scan, page: &Page) -> Result<PageStep, Failure> {
        if let Some(version) = scan
            .version
            .as_ref()
            .filter(|version| **version != page.version)
        {
            let reason = format!("the source went from version {version} to {}", page.version);
            return Ok(PageStep::Changed(reason));
        }
        if let Some(pair) = page.rows.windows(2).find(|pair| pair[0].key >= pair[1].key) {
            return Err(Failure::fatal(format!(
                "the source is not sorted by (updated_at, id): {:?} comes before {:?}",
                pair[0].key, pair[1].key
            )));
        }
        let new = |row: &&Row| scan.last.as_ref().is_none_or(|last| row.key > *last);
        let rows: Vec<Row> = page.rows.iter().filter(new).cloned().collect();
        let mut after = scan.clone();
        after.version = Some(page.version.clone());
        after.total = page.total;
        after.cursor.clone_from(&page.next);
        after.idle_pages = if rows.is_empty() {
            scan.idle_pages + 1
        } else {
            0
        };
        if after.idle_pages > MAX_IDLE_PAGES {
            let pages = after.idle_pages;
            return Err(Failure::retry(format!(
                "the source served {pages} pages without new rows"
            )));
        }
        for row in &rows {
            after.rows += 1;
            after.checksum.add(&row.document);
        }
        if let Some(row) = rows.last() {
            after.last = Some(row.key.clone());
        }
        let phase = if after.cursor.is_some() {
            Phase::Scan(after)
        } else {
            Phase::Verify(after)
        };
        Ok(PageStep::Write {
            rows,
            next: self.with(phase),
        })
    }

    /// The target said what it holds: go on, or say why not.
    pub(crate) fn verified(
        &self,
        scanned: &Scan,
        found: &Stats,
        min_rows: u64,
    ) -> Result<Verdict, Failure> {
        if let Some(total) = scanned.total.filter(|total| *total != scanned.rows) {
            let rows = scanned.rows;
            return Ok(Verdict::Differs(format!(
                "the source counts {total} rows, {rows} were read"
            )));
        }
        if found.count != scanned.rows || found.checksum != scanned.checksum {
            return Ok(Verdict::Differs(format!(
                "{} rows with checksum {} were written, the target holds {} with {}",
                scanned.rows, scanned.checksum, found.count, found.checksum
            )));
        }
        if scanned.rows < min_rows {
            return Err(Failure::fatal(format!(
                "the source has {} rows, `min_rows` is {min_rows}: the alias was not switched",
                scanned.rows
            )));
        }
        Ok(Verdict::Matches(self.with(Phase::Switch(scanned.clone()))))
    }

    /// The index is in service.
    pub(crate) fn switched(&self, scanned: &Scan) -> Self {
        self.with(Phase::CleanUp(scanned.clone()))
    }

    /// Progress for people: done, total and a text.
    pub(crate) fn report(&self) -> (f64, Option<f64>, String) {
        let (doing, scan) = match &self.phase {
            Phase::Create => ("creating the index", None),
            Phase::Scan(scan) => ("copying", Some(scan)),
            Phase::Verify(scan) => ("verifying", Some(scan)),
            Phase::Switch(scan) => ("switching over", Some(scan)),
            Phase::CleanUp(scan) => ("cleaning up", Some(scan)),
        };
        let number = |count: u64| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        let done = scan.map_or(0.0, |scan| number(scan.rows));
        let total = scan.and_then(|scan| scan.total).map(number);
        (done, total, format!("scan {}: {doing}", self.scan))
    }
}
