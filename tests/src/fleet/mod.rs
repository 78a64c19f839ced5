//! Pods as processes that share a folder of plugins and job files: what chaos and load runs stand on.

mod backing;
mod pod;
mod running;
mod site;
mod slot;
mod timing;

pub use backing::{Backing, StoreKind};
pub use pod::{PodProcess, Signal};
pub use running::{Fleet, Plan, SharedFleet, now};
pub use site::Site;
pub use slot::{Held, Slot};
pub use timing::Timing;
