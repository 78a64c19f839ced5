//! Does to a fleet what was planned.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::time::sleep;
use wasmcron_core::time::Timestamp;

use super::plan::{Cut, Fault, Who};
use crate::fleet::{self, Fleet, Held, Signal, Slot};
use crate::guests;
use crate::history::{self, Harm, Span};
use crate::proxy::{Proxy, Way};
use crate::redis_server::RedisServer;

/// How long a pod may take to end after SIGTERM: its drain, and much slack.
const END: Duration = Duration::from_secs(60);
/// How long the store is asked for whom a fault shall meet.
const ASK: Duration = Duration::from_millis(500);

/// Injects a fault and waits until what it harmed is whole again. `say` hears of it when it begins.
///
/// # Errors
/// When the fleet cannot be made whole again.
pub async fn inject(
    fleet: &Fleet,
    fault: Fault,
    plugins: &[&str],
    say: impl Fn(String),
) -> Result<()> {
    match fault {
        Fault::Kill(who, _)
        | Fault::Terminate(who, _)
        | Fault::Freeze(who, _)
        | Fault::Cut(who, _, _) => {
            let Some((slot, held)) = choose(fleet, who).await else {
                say(format!("{fault}: every pod is being harmed already"));
                return Ok(());
            };
            let text = format!("{fault}: {}", slot.address);
            say(text.clone());
            let from = fleet::now();
            let harm = harm_pod(fleet, slot, held, fault).await?;
            write(fleet, from, harm, Some(slot), text);
        }
        Fault::Swap(number) => {
            say(fault.to_string());
            let from = fleet::now();
            for plugin in plugins {
                let bytes = guests::retagged(&guests::bytes(plugin)?, &format!("v{number}"));
                fleet.site.write_plugin(plugin, &bytes)?;
            }
            write(fleet, from, Harm::Swapped, None, fault.to_string());
        }
        _ => {
            let server = fleet.backing.server();
            let server = server.with_context(|| format!("{fault}: this store has no server"))?;
            let Ok(mut server) = server.try_lock() else {
                say(format!("{fault}: it is away already"));
                return Ok(());
            };
            say(fault.to_string());
            let from = fleet::now();
            harm_store(&mut server, fault).await?;
            write(fleet, from, Harm::StoreAway, None, fault.to_string());
        }
    }
    Ok(())
}

fn write(fleet: &Fleet, from: Timestamp, harm: Harm, slot: Option<&Slot>, text: String) {
    let until = fleet::now();
    fleet.note(history::Fault {
        span: Span { from, until },
        harm,
        pod: slot.map(|slot| slot.address.clone()),
        text,
    });
}

async fn harm_store(server: &mut RedisServer, fault: Fault) -> Result<()> {
    match fault {
        Fault::StoreRestart(time) => {
            server.kill();
            sleep(time).await;
            server.restart().await;
        }
        Fault::StorePause(time) => {
            tell(server, &format!("CLIENT PAUSE {} ALL", time.as_millis())).await?;
            sleep(time).await;
        }
        Fault::StoreFreeze(time) => {
            Signal::Stop.send(server.id())?;
            sleep(time).await;
            Signal::Continue.send(server.id())?;
        }
        Fault::StoreFull(time) => {
            tell(server, "CONFIG SET maxmemory 1").await?;
            sleep(time).await;
            tell(server, "CONFIG SET maxmemory 0").await?;
        }
        Fault::StoreReadOnly(time) => {
            // There is no such primary: it keeps its data and asks in vain.
            tell(server, "REPLICAOF 127.0.0.1 1").await?;
            sleep(time).await;
            tell(server, "REPLICAOF NO ONE").await?;
        }
        Fault::StoreForgets => tell(server, "SCRIPT FLUSH").await?,
        _ => bail!("{fault} is no fault of the store"),
    }
    Ok(())
}

async fn tell(server: &RedisServer, command: &str) -> Result<()> {
    let answer = server.tell(command).await;
    if answer.as_deref() != Some("+OK") {
        bail!("{command} was answered {answer:?}");
    }
    Ok(())
}

async fn harm_pod(fleet: &Fleet, slot: &Slot, mut held: Held<'_>, fault: Fault) -> Result<Harm> {
    let Some(process) = held.as_mut() else {
        bail!("pod {} was never started", slot.address);
    };
    match fault {
        Fault::Kill(_, down) => {
            process.signal(Signal::Kill)?;
            process.ended(END).await?;
            sleep(down).await;
            fleet.note_failed_starts(slot.start(&mut held).await?);
            Ok(Harm::Killed)
        }
        Fault::Terminate(_, down) => {
            process.signal(Signal::Terminate)?;
            let status = process.ended(END).await?;
            if !status.success() {
                let words = process.last_words(12);
                fleet.note_end(format!(
                    "{} ended with {status} after SIGTERM:\n{words}",
                    slot.address
                ));
            }
            sleep(down).await;
            fleet.note_failed_starts(slot.start(&mut held).await?);
            Ok(Harm::Terminated)
        }
        Fault::Freeze(_, time) => {
            process.signal(Signal::Stop)?;
            sleep(time).await;
            process.signal(Signal::Continue)?;
            Ok(Harm::Frozen)
        }
        Fault::Cut(_, cut, time) => {
            let proxy = slot.proxy.as_ref();
            disturb(proxy.context("nothing to cut")?, cut, time).await;
            Ok(Harm::Cut)
        }
        _ => bail!("{fault} is no fault of a pod"),
    }
}

async fn disturb(proxy: &Proxy, cut: Cut, time: Duration) {
    match cut {
        Cut::HoldRequests => proxy.set(Way::Held, Way::Open),
        Cut::HoldAnswers => proxy.set(Way::Open, Way::Held),
        Cut::HoldBoth => proxy.set(Way::Held, Way::Held),
        Cut::SwallowAnswers => proxy.set(Way::Open, Way::Swallowed),
        Cut::SwallowBoth => proxy.set(Way::Swallowed, Way::Swallowed),
        Cut::Slow(by) => proxy.set(Way::Slow(by), Way::Slow(by)),
        Cut::Reset => return proxy.reset(),
        Cut::Refuse => {
            proxy.refuse(true);
            proxy.reset();
        }
    }
    sleep(time).await;
    proxy.heal();
}

/// The pod that a fault shall meet, or the next one that nobody harms already.
async fn choose(fleet: &Fleet, who: Who) -> Option<(&Slot, Held<'_>)> {
    let count = fleet.slots.len();
    let index = match who {
        Who::Any(number) => usize::try_from(number).ok()? % count.max(1),
        Who::Leader => index(fleet, leader(fleet).await),
        Who::Executor(number) => index(fleet, executor(fleet, number).await),
    };
    let order = (0..count).map(|step| &fleet.slots[(index + step) % count]);
    order
        .into_iter()
        .find_map(|slot| Some((slot, slot.try_hold()?)))
}

fn index(fleet: &Fleet, address: Option<String>) -> usize {
    let found = fleet
        .slots
        .iter()
        .position(|slot| Some(&slot.address) == address.as_ref());
    found.unwrap_or(0)
}

async fn leader(fleet: &Fleet) -> Option<String> {
    let leader = tokio::time::timeout(ASK, fleet.backing.store.leader());
    let leader = leader.await.ok()?.ok()??;
    Some(leader.pod.address.to_string())
}

async fn executor(fleet: &Fleet, number: u32) -> Option<String> {
    let running = tokio::time::timeout(ASK, fleet.backing.store.running(None));
    let entries = running.await.ok()?.ok()?.entries;
    let chosen = usize::try_from(number).ok()? % entries.len().max(1);
    Some(entries.get(chosen)?.pod.to_string())
}
