//! What lies between pods and the store: time, loss, lateness and cuts, all from one seed.

mod link;
mod plans;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use wasmcron_core::ids::PodAddress;
use wasmcron_store::control::{WAKES_MAX, Wake};
use wasmcron_store::{Result, Store, StoreError};

use plans::Plans;

use crate::check::Witness;

pub use link::Link;
pub use plans::Held;

/// How long a pod waits for an answer.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The usual way there and back takes up to this long.
const TRIP_MAX_MS: u64 = 3;

/// How a link treats requests for a while; shares in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Requests that never arrive.
    pub lost: u8,
    /// Requests that are executed and whose answer never arrives.
    pub unanswered: u8,
    /// Requests that are executed long after their sender gave up.
    pub late: u8,
    /// The most by which the others are slowed down, there and back.
    pub slow: Duration,
}

/// How a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing arrives, neither way.
    Silent,
    /// Requests arrive, answers do not.
    Answers,
    /// Every request is refused at once.
    Reset,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after a moment and is answered at once.
    Plain {
        /// The moment.
        trip: Duration,
    },
    /// It takes its time, each way or for ever.
    Rough {
        /// Until it is executed; none: never.
        there: Option<Duration>,
        /// Until its answer arrives; none: never.
        back: Option<Duration>,
    },
    /// It waits until a scenario lets it go.
    Held {
        /// The number of the wait.
        hold: usize,
    },
    /// It is refused.
    Reset,
}

/// The network and the server at its end.
pub struct Network {
    store: Arc<dyn Store>,
    witness: Arc<Witness>,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    dice: fastrand::Rng,
    weather: Weather,
    links: BTreeMap<PodAddress, LinkState>,
    /// What shall become of requests to come.
    plans: Plans,
    down: bool,
    epoch: u64,
    requests: u64,
    mishaps: u64,
}

#[derive(Clone, Copy, Default)]
struct LinkState {
    weather: Weather,
    cut: Option<Cut>,
}

impl Network {
    /// A quiet network before a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, seed: u64, witness: Arc<Witness>) -> Arc<Network> {
        Arc::new(Network {
            store,
            witness,
            state: Mutex::new(State {
                dice: fastrand::Rng::with_seed(seed),
                weather: Weather::default(),
                links: BTreeMap::new(),
                plans: Plans::default(),
                down: false,
                epoch: 0,
                requests: 0,
                mishaps: 0,
            }),
            changed: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Weather for all links.
    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// Weather for one link.
    pub fn set_weather_of(&self, pod: &PodAddress, weather: Weather) {
        self.lock().links.entry(pod.clone()).or_default().weather = weather;
    }

    /// Cuts a link, or mends it.
    pub fn cut(&self, pod: &PodAddress, cut: Option<Cut>) {
        self.lock().links.entry(pod.clone()).or_default().cut = cut;
        self.changed.notify_waiters();
    }

    /// The server goes down, or comes back; all connections are new then.
    pub fn set_down(&self, down: bool) {
        let mut state = self.lock();
        if state.down != down {
            state.down = down;
            state.epoch += 1;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Requests so far, and how many of them had bad luck.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.requests, state.mishaps)
    }

    /// Grows whenever the server goes down or comes back.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// The error of a request that found nobody.
    pub(crate) fn gone(&self, verb: &'static str) -> StoreError {
        StoreError::Unavailable {
            verb,
            message: "the connection was refused".into(),
        }
    }

    fn unanswered(verb: &'static str) -> StoreError {
        StoreError::Unavailable {
            verb,
            message: "no answer came in time".into(),
        }
    }

    /// The store, as a request finds it on arrival.
    pub(crate) fn store(&self, verb: &'static str) -> Result<Arc<dyn Store>> {
        if self.lock().down {
            return Err(self.gone(verb));
        }
        Ok(self.store.clone())
    }

    /// Throws the dice for one request.
    pub(crate) fn fate(&self, pod: &PodAddress, verb: &'static str) -> Fate {
        let mut state = self.lock();
        state.requests += 1;
        if let Some(fate) = state.plans.meet(pod, verb) {
            state.mishaps += u64::from(!matches!(fate, Fate::Plain { .. }));
            return fate;
        }
        let link = state.links.get(pod).copied().unwrap_or_default();
        let fate = match link.cut {
            Some(Cut::Silent) => Fate::Rough {
                there: None,
                back: None,
            },
            Some(Cut::Answers) => Fate::Rough {
                there: Some(Duration::from_millis(1)),
                back: None,
            },
            Some(Cut::Reset) => Fate::Reset,
            None => {
                let weather = if link.weather == Weather::default() {
                    state.weather
                } else {
                    link.weather
                };
                weather.fate(&mut state.dice)
            }
        };
        if !matches!(fate, Fate::Plain { .. }) {
            state.mishaps += 1;
        }
        drop(state);
        let in_time =
            |there: &Option<Duration>| there.is_some_and(|there| there < RESPONSE_TIMEOUT);
        if verb == "claim" && matches!(&fate, Fate::Rough { there, .. } if !in_time(there)) {
            self.witness.claim_in_vain(pod);
        }
        fate
    }

    fn hold_of(&self, fate: Fate) -> Option<Arc<plans::Hold>> {
        match fate {
            Fate::Held { hold } => self.lock().plans.hold(hold),
            _ => None,
        }
    }

    /// Carries a request that does not go the plain way.
    pub(crate) async fn deliver<T, F, R>(
        self: &Arc<Self>,
        verb: &'static str,
        fate: Fate,
        request: R,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        R: FnOnce(Arc<dyn Store>) -> F + Send + 'static,
    {
        let (there, back) = match fate {
            Fate::Plain { trip } => (Some(trip), Some(Duration::ZERO)),
            Fate::Rough { there, back } => (there, back),
            Fate::Held { .. } => (Some(Duration::ZERO), Some(Duration::ZERO)),
            Fate::Reset => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                return Err(self.gone(verb));
            }
        };
        let hold = self.hold_of(fate);
        let (answer, arrives) = oneshot::channel();
        if let Some(there) = there {
            let net = self.clone();
            // The request travels without its sender: one who gives up or dies does not call it back.
            tokio::spawn(async move {
                tokio::time::sleep(there).await;
                if let Some(hold) = hold {
                    hold.wait().await;
                }
                let said = match net.store(verb) {
                    Ok(store) => request(store).await,
                    Err(error) => Err(error),
                };
                if let Some(back) = back {
                    tokio::time::sleep(back).await;
                    let _ = answer.send(said);
                }
            });
        }
        if there.is_none() || back.is_none() {
            tokio::time::sleep(RESPONSE_TIMEOUT).await;
            return Err(Self::unanswered(verb));
        }
        match tokio::time::timeout(RESPONSE_TIMEOUT, arrives).await {
            Ok(Ok(said)) => said,
            Ok(Err(_)) | Err(_) => Err(Self::unanswered(verb)),
        }
    }

    /// The way of a waiting request to the server; answers how long its answer will take.
    pub(crate) async fn sets_out(
        &self,
        verb: &'static str,
        fate: Fate,
    ) -> Result<Option<Duration>> {
        let (there, back) = match fate {
            Fate::Plain { trip } => (Some(trip), Some(Duration::ZERO)),
            Fate::Rough { there, back } => (there, back),
            Fate::Reset | Fate::Held { .. } => (Some(Duration::from_millis(1)), None),
        };
        tokio::time::sleep(there.unwrap_or(RESPONSE_TIMEOUT).min(RESPONSE_TIMEOUT)).await;
        if fate == Fate::Reset {
            return Err(self.gone(verb));
        }
        match there {
            Some(_) => Ok(back),
            None => Err(Self::unanswered(verb)),
        }
    }

    /// The way of the answer.
    pub(crate) async fn comes_back(
        &self,
        verb: &'static str,
        back: Option<Duration>,
    ) -> Result<()> {
        let wait = back.unwrap_or(RESPONSE_TIMEOUT).min(RESPONSE_TIMEOUT);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        match back {
            Some(_) => Ok(()),
            None => Err(Self::unanswered(verb)),
        }
    }

    /// A subscription to wake-ups that ends and begins again with the connection.
    pub(crate) fn listen(self: &Arc<Self>, pod: &PodAddress) -> mpsc::Receiver<Wake> {
        let (sender, receiver) = mpsc::channel(WAKES_MAX);
        tokio::spawn(carry_wakes(self.clone(), pod.clone(), sender));
        receiver
    }

    /// Whether a subscription of this pod can stand.
    fn connected(&self, pod: &PodAddress) -> bool {
        let state = self.lock();
        !state.down && state.links.get(pod).is_none_or(|link| link.cut.is_none())
    }
}

impl Weather {
    fn fate(self, dice: &mut fastrand::Rng) -> Fate {
        let ms = Duration::from_millis;
        let trip = ms(dice.u64(1..=TRIP_MAX_MS));
        if self == Weather::default() {
            return Fate::Plain { trip };
        }
        let throw = dice.u8(0..100);
        if throw < self.lost {
            return Fate::Rough {
                there: None,
                back: None,
            };
        }
        if throw < self.lost + self.unanswered {
            return Fate::Rough {
                there: Some(trip),
                back: None,
            };
        }
        if throw < self.lost + self.unanswered + self.late {
            let late = RESPONSE_TIMEOUT + ms(dice.u64(1..=20_000));
            return Fate::Rough {
                there: Some(late),
                back: None,
            };
        }
        let slow = u64::try_from(self.slow.as_millis()).unwrap_or(0);
        Fate::Rough {
            there: Some(trip + ms(dice.u64(0..=slow))),
            back: Some(ms(dice.u64(0..=slow))),
        }
    }
}

async fn carry_wakes(net: Arc<Network>, pod: PodAddress, to: mpsc::Sender<Wake>) {
    loop {
        while !net.connected(&pod) {
            let changed = net.changed.notified();
            tokio::select! {
                biased;
                () = to.closed() => return,
                () = changed => {}
            }
        }
        let mut wakes = net.store.listen();
        let epoch = net.epoch();
        loop {
            let changed = net.changed.notified();
            tokio::select! {
                biased;
                () = to.closed() => return,
                () = changed => if net.epoch() != epoch || !net.connected(&pod) { break },
                wake = wakes.recv() => match wake {
                    // A listener that is slow misses some, as with every store.
                    Some(wake) => { let _ = to.try_send(wake); }
                    None => break,
                },
            }
        }
    }
}
