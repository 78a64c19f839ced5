//! What an idle pod keeps in memory.

use std::time::Duration;

use anyhow::Result;

use crate::pod::{Site, resident};
use crate::report::Figure;

/// The plugins of this repository.
const PLUGINS: [&str; 3] = ["hello", "daily-report", "merchant-full-sync"];
/// What a pod gets to settle.
const REST: Duration = Duration::from_secs(10);
/// In megabytes of a million bytes.
const LIMIT: f64 = 60.0;

/// A pod that compiled its plugins, and one that found them compiled.
pub async fn measure() -> Result<Vec<Figure>> {
    let site = Site::new(&PLUGINS).await?;
    site.job("idle", "hello", "")?;
    let mut figures = Vec::new();
    for how in ["plugins compiled by it", "plugins compiled before"] {
        let pod = site.pod(1).await?;
        tokio::time::sleep(REST).await;
        let what = format!("resident, idle pod, three {how}");
        figures.push(Figure::new(what, "MB", resident(pod.id()?)?).at_most(LIMIT));
    }
    Ok(figures)
}
