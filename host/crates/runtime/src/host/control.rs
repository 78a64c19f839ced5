//! `wasmcron:job/control`.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};

use crate::bindings::wasmcron::job::control::{self, StopReason as WitReason};
use crate::control::{AttemptControl, StopReason};
use crate::sandbox::Sandbox;

/// Ready once there is a reason to stop.
struct StopSignal(AttemptControl);

#[wasmtime_wasi::async_trait]
impl Pollable for StopSignal {
    async fn ready(&mut self) {
        loop {
            let changed = self.0.changed();
            tokio::pin!(changed);
            // Listen before looking, or a change between the two is missed.
            changed.as_mut().enable();
            if self.0.stop_reason().is_some() {
                return;
            }
            changed.await;
        }
    }
}

impl control::Host for Sandbox {
    fn should_stop(&mut self) -> wasmtime::Result<Option<WitReason>> {
        Ok(self.control.stop_reason().map(|reason| match reason {
            StopReason::Reload => WitReason::Reload,
            StopReason::Draining => WitReason::Draining,
            StopReason::TimeOutNear => WitReason::TimeOutNear,
            StopReason::Cancelled => WitReason::Cancelled,
            StopReason::LockLost => WitReason::LockLost,
        }))
    }

    fn subscribe(&mut self) -> wasmtime::Result<Resource<DynPollable>> {
        let signal = self.table.push(StopSignal(self.control.clone()))?;
        subscribe(&mut self.table, signal)
    }
}
