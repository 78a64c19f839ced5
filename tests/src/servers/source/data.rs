//! The rows of the source.

use std::fmt;

use serde_json::{Value, json};

const CITIES: [&str; 8] = [
    "Aachen", "Bergen", "Chengdu", "Dakar", "Esbjerg", "Fukuoka", "Graz", "Hobart",
];

/// Merchants, sorted by `updated_at`, then `id`. Several share each `updated_at`, so that a
/// reader without the tie-breaker loses rows.
#[derive(Clone, Debug)]
pub struct Merchants {
    rows: Vec<Value>,
    version: u64,
    random: fastrand::Rng,
    /// The second of the newest `updated_at`.
    newest: u64,
}

/// A place between two rows of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The version it belongs to.
    pub version: u64,
    /// `updated_at` and `id` of the row before it; none at the start.
    after: Option<(String, String)>,
}

impl Cursor {
    /// Before the first row.
    pub fn start(version: u64) -> Self {
        Self {
            version,
            after: None,
        }
    }

    /// Reads the text that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, after) = text.split_once('|')?;
        let (updated_at, id) = after.split_once('|')?;
        let after = Some((updated_at.to_owned(), id.to_owned()));
        Some(Self {
            version: version.parse().ok()?,
            after,
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (updated_at, id) = self
            .after
            .as_ref()
            .map_or(("", ""), |(updated_at, id)| (updated_at, id));
        write!(f, "{}|{updated_at}|{id}", self.version)
    }
}

impl Merchants {
    /// `count` rows that follow from the seed alone.
    pub fn new(seed: u64, count: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut second = 0;
        let mut rows: Vec<Value> = (1..=count)
            .map(|number| {
                // About five rows a second.
                second += u64::from(random.u8(..5) == 0);
                let city = CITIES[random.usize(..CITIES.len())];
                json!({
                    "id": format!("m-{:08x}-{number}", random.u32(..)),
                    "updated_at": time(second),
                    "name": format!("Merchant {number} of {city}"),
                    "city": city,
                    "balance_cents": random.i64(-500_000..5_000_000),
                    "active": random.u8(..10) > 0,
                })
            })
            .collect();
        sort(&mut rows);
        Self {
            rows,
            version: 1,
            random,
            newest: second,
        }
    }

    /// All rows in order.
    pub fn rows(&self) -> &[Value] {
        &self.rows
    }

    /// Rises with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Changes `count` rows, which moves them to the end.
    pub fn change(&mut self, count: usize) {
        self.newest += 1;
        for _ in 0..count.min(self.rows.len()) {
            let at = self.random.usize(..self.rows.len());
            let balance = self.random.i64(-500_000..5_000_000);
            self.rows[at]["balance_cents"] = balance.into();
            self.rows[at]["updated_at"] = time(self.newest).into();
        }
        sort(&mut self.rows);
        self.version += 1;
    }

    /// The rows after a cursor, at most `limit`, and the cursor after them if there are more.
    pub fn page(&self, cursor: &Cursor, limit: usize) -> (Vec<Value>, Option<Cursor>) {
        let from = match &cursor.after {
            None => 0,
            Some((updated_at, id)) => self
                .rows
                .partition_point(|row| key(row) <= (updated_at.as_str(), id.as_str())),
        };
        let to = (from + limit).min(self.rows.len());
        let rows = self.rows[from..to].to_vec();
        let next = rows.last().filter(|_| to < self.rows.len()).map(|last| {
            let (updated_at, id) = key(last);
            let after = Some((updated_at.to_owned(), id.to_owned()));
            Cursor {
                version: cursor.version,
                after,
            }
        });
        (rows, next)
    }
}

fn sort(rows: &mut [Value]) {
    rows.sort_by(|a, b| key(a).cmp(&key(b)));
}

fn key(row: &Value) -> (&str, &str) {
    let text = |name| row[name].as_str().unwrap_or_default();
    (text("updated_at"), text("id"))
}

/// A second of the year 2026's first months, as text that sorts like the number.
fn time(second: u64) -> String {
    let (days, rest) = (second / 86_400, second % 86_400);
    let (month, day) = (1 + days / 28, 1 + days % 28);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(merchants: &Merchants, limit: usize) -> Vec<Value> {
        let mut all = Vec::new();
        let mut cursor = Some(Cursor::start(merchants.version()));
        while let Some(at) = cursor {
            let (rows, next) = merchants.page(&at, limit);
            all.extend(rows);
            cursor = next.map(|next| Cursor::parse(&next.to_string()).expect("a cursor"));
        }
        all
    }

    #[test]
    fn the_seed_decides_the_rows() {
        assert_eq!(Merchants::new(7, 50).rows(), Merchants::new(7, 50).rows());
        assert_ne!(Merchants::new(7, 50).rows(), Merchants::new(8, 50).rows());
    }

    #[test]
    fn pages_of_any_size_have_each_row_once() {
        let merchants = Merchants::new(3, 101);
        let same_time = merchants
            .rows()
            .windows(2)
            .any(|w| w[0]["updated_at"] == w[1]["updated_at"]);
        assert!(same_time, "equal sort keys are part of the data");
        for limit in [1, 2, 7, 100, 101, 1000] {
            assert_eq!(
                read_all(&merchants, limit),
                merchants.rows(),
                "limit {limit}"
            );
        }
    }

    #[test]
    fn a_change_keeps_ids_and_raises_the_version() {
        let mut merchants = Merchants::new(3, 20);
        let before = merchants.rows().to_vec();
        merchants.change(5);
        assert_eq!(merchants.version(), 2);
        assert_ne!(merchants.rows(), before);
        assert_eq!(read_all(&merchants, 3), merchants.rows());
    }
}
