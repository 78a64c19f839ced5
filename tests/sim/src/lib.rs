//! Simulation of a wasmcron fleet: the production code of core and services over a simulated clock,
//! network and store, driven by one seed.

#[macro_use]
mod verbs;

pub mod check;
mod clock;
mod faults;
mod fragile;
mod gate;
mod guests;
pub mod hunt;
mod jobs;
mod layer;
mod machine;
pub mod mutants;
mod net;
pub mod plan;
mod pod;
pub mod scale;
pub mod scenario;
pub mod shrink;
pub mod world;
