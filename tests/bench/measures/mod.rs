//! One file for each thing that is measured; each answers its lines of the table.

pub mod late;
pub mod memory;
pub mod publish;
pub mod reload;
pub mod runs;
pub mod sandbox;
pub mod start;
