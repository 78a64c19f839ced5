//! Settings of the pod's runtime. Stack depth, threads and allocation belong to the engine and are
//! the same for all plugins; what one attempt may use up is in [`Limits`](crate::Limits).

use std::path::PathBuf;
use std::time::Duration;

/// Settings of one [`Runtime`](crate::Runtime).
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// OS threads that execute guests; they do nothing else. At least 1.
    pub guest_threads: usize,
    /// Time between two epoch ticks: how long a guest computes before its thread looks at others.
    pub tick: Duration,
    /// Folder for compiled plugins; it is created with mode 0700 and refused when other users may
    /// write to it, since what lies in it is executed. `None` compiles at every start.
    pub cache_dir: Option<PathBuf>,
    /// Pooled instead of on-demand allocation; starts are faster and cost half the processor time,
    /// in exchange for fixed limits. `None` for on demand.
    pub pool: Option<PoolConfig>,
    /// Stack of a guest, in bytes.
    pub stack: usize,
    /// `limits.memory` that no job may exceed, in bytes: a plugin whose memories start larger is
    /// refused when it is loaded.
    pub memory_max: u64,
    /// Largest plugin file, in bytes.
    pub plugin_max: u64,
    /// Time for `describe`, its instantiation included.
    pub describe_time: Duration,
    /// Memory for `describe`, in bytes.
    pub describe_memory: u64,
    /// How often an offered checkpoint is saved.
    pub offer_interval: Duration,
    /// How long the last save of an offered checkpoint may take when an attempt ends.
    pub flush_time: Duration,
    /// Most time between two reports of progress that reach the host.
    pub progress_interval: Duration,
    /// PEM file with further certificate authorities for outbound HTTPS.
    pub http_ca_file: Option<PathBuf>,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            guest_threads: std::thread::available_parallelism().map_or(2, usize::from),
            tick: Duration::from_millis(2),
            cache_dir: None,
            pool: None,
            stack: 1 << 20,
            memory_max: 4 << 30,
            plugin_max: 256 << 20,
            describe_time: Duration::from_secs(2),
            describe_memory: 128 << 20,
            offer_interval: Duration::from_secs(5),
            flush_time: Duration::from_secs(2),
            progress_interval: Duration::from_millis(250),
            http_ca_file: None,
        }
    }
}

/// Sizes of the pooling allocator. A plugin that does not fit is refused when it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Component instances alive at the same time.
    pub instances: u32,
    /// Core instances of one component; Python components have more than ten.
    pub core_instances_each: u32,
    /// Largest linear memory, in bytes.
    pub memory: usize,
}

impl PoolConfig {
    /// For so many attempts at the same time, whose memories may grow to `memory` bytes.
    #[must_use]
    pub fn for_attempts(attempts: u32, memory: u64) -> Self {
        // What was interrupted may still be on its way out when the next attempt begins.
        let describing = u32::try_from(crate::engine::DESCRIBING_MAX).unwrap_or(8);
        Self {
            instances: attempts.saturating_mul(2).saturating_add(describing),
            memory: usize::try_from(memory.min(4 << 30)).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            instances: 64,
            core_instances_each: 20,
            memory: 256 << 20,
        }
    }
}
