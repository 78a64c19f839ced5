//! How fast a leader publishes, a hundred tasks a call.

use std::time::Instant;

use anyhow::{Result, ensure};
use wasmcron_store::schedule::{PublishAnswer, Published};
use wasmcron_tests::redis_server::RedisServer;

use crate::raw::Raw;
use crate::report::Figure;
use crate::stats::{median, rate};
use crate::wire::Wire;

/// Tasks of one call.
const EACH: usize = 100;
/// Calls of one round.
const CALLS: u64 = 40;
const ROUNDS: u64 = 7;
/// Whose jobs the store publishes.
const OURS: &str = "our";

/// Takes turns between the store and the bare requests.
pub async fn measure() -> Result<Vec<Figure>> {
    let server = RedisServer::start().await;
    let raw = Raw::new(&server, EACH).await?;
    raw.open(OURS).await;
    let pod = raw.world.pod("ourpod").await;
    let mut wire = Wire::connect(server.port()).await?;
    let tasks = EACH * usize::try_from(CALLS)?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (mut requests, mut calls) = (Vec::new(), Vec::new());
        for at in round * CALLS..(round + 1) * CALLS {
            requests.extend(raw.publishes(at + 1, EACH).await?);
            calls.extend(raw.decisions(OURS, &pod, at + 1, EACH)?);
        }
        let began = Instant::now();
        for decisions in &calls {
            let answer = raw.world.store.publish(&raw.term, decisions).await?;
            let PublishAnswer::Answers(answers) = answer else {
                anyhow::bail!("the leader was deposed");
            };
            ensure!(answers.iter().all(|answer| *answer == Published::Published));
        }
        ours.push(rate(tasks, began.elapsed()));
        bare.push(rate(tasks, raw.publish(&mut wire, &requests).await?));
    }
    let figure = Figure::new("publish, 100 tasks a call", "tasks/s", median(ours));
    Ok(vec![figure.raw(median(bare)).at_least_of_raw(0.8)])
}
