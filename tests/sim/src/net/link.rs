//! A pod's connection to the store, as a store: each request travels, may be lost, may be executed
//! late, and so may its answer.

use std::borrow::Borrow as _;

use super::{Fate, Network, RESPONSE_TIMEOUT};
use crate::gate::{Gate, cpu_nanos};
use wasmcron_core::ids::PodAddress as Address;

use crate::verbs::words::*;

/// One pod's way to the store.
pub struct Link {
    pod: Address,
    net: Arc<Network>,
    gate: Option<Arc<Gate>>,
}

impl Link {
    /// From this pod, over this network.
    #[must_use]
    pub fn new(net: Arc<Network>, pod: Address) -> Link {
        Link {
            pod,
            net,
            gate: None,
        }
    }

    /// Does not count what the store does as work of the pod behind this gate.
    #[must_use]
    pub fn behind(self, gate: Arc<Gate>) -> Link {
        Link {
            gate: Some(gate),
            ..self
        }
    }

    /// Sends a request on its way. It goes on without its sender, as a datagram does.
    async fn call<T, F, R>(&self, verb: &'static str, request: R) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
        R: FnOnce(Arc<dyn Store>) -> F + Send + 'static,
    {
        let fate = self.net.fate(&self.pod, verb);
        if let Fate::Plain { trip } = fate {
            tokio::time::sleep(trip).await;
            let store = self.net.store(verb)?;
            let Some(meter) = self.gate.as_ref().and_then(|gate| gate.meter()) else {
                return request(store).await;
            };
            let began = cpu_nanos();
            let answer = request(store).await;
            meter.forgive(cpu_nanos().saturating_sub(began));
            return answer;
        }
        self.net.deliver(verb, fate, request).await
    }
}

/// An argument that outlives its caller.
macro_rules! own {
    ($arg:ident Option<& $($ty:tt)*) => {
        $arg.map(ToOwned::to_owned)
    };
    ($arg:ident & $($ty:tt)*) => {
        $arg.to_owned()
    };
    ($arg:ident $($ty:tt)*) => {
        $arg
    };
}

/// The argument as the verb takes it.
macro_rules! lend {
    ($arg:ident Option<&str>) => {
        $arg.as_deref()
    };
    ($arg:ident Option<& $($ty:tt)*) => {
        $arg.as_ref()
    };
    ($arg:ident & $($ty:tt)*) => {
        $arg.borrow()
    };
    ($arg:ident $($ty:tt)*) => {
        $arg
    };
}

/// One role over a link.
macro_rules! role {
    (Queue { $($verbs:tt)* }) => {
        role!(@impl Queue {
            fn consumer(&self, me: &PodRef) -> Box<dyn Consumer> {
                Box::new(LinkConsumer { net: self.net.clone(), me: me.clone(), inner: None })
            }
        } $($verbs)*);
    };
    (Control { $($verbs:tt)* }) => {
        role!(@impl Control {
            fn listen(&self) -> mpsc::Receiver<Wake> {
                self.net.listen(&self.pod)
            }
        } $($verbs)*);
    };
    ($role:ident { $($verbs:tt)* }) => { role!(@impl $role {} $($verbs)*); };
    (@impl $role:ident { $($more:tt)* }
        $( fn $verb:ident($($arg:ident: [$($ty:tt)*]),* $(,)?) -> [$($answer:tt)*]; )*) => {
        #[async_trait]
        impl $role for Link {
            $($more)*
            $(
                async fn $verb(&self, $($arg: $($ty)*),*) -> Result<$($answer)*> {
                    $( let $arg = own!($arg $($ty)*); )*
                    self.call(stringify!($verb), move |store| async move {
                        store.$verb($( lend!($arg $($ty)*) ),*).await
                    })
                    .await
                }
            )*
        }
    };
}

macro_rules! link {
    ($($role:ident { $($verbs:tt)* })*) => { $( role!($role { $($verbs)* }); )* };
}

for_each_verb!(link);

/// The connection on which a pod waits for tasks.
struct LinkConsumer {
    net: Arc<Network>,
    me: PodRef,
    inner: Option<Box<dyn Consumer>>,
}

impl LinkConsumer {
    /// The server takes when the hold ends, whatever became of its client meanwhile.
    async fn taken_for_nobody(
        &mut self,
        hold: Arc<super::plans::Hold>,
        wait: Duration,
        max: usize,
    ) -> Result<Vec<Taken>> {
        let (net, me) = (self.net.clone(), self.me.clone());
        tokio::spawn(async move {
            hold.wait().await;
            let store = net.store("take")?;
            store.consumer(&me).take(wait, max).await
        });
        tokio::time::sleep(wait + RESPONSE_TIMEOUT).await;
        Err(Network::unanswered("take"))
    }
}

#[async_trait]
impl Consumer for LinkConsumer {
    async fn take(&mut self, wait: Duration, max: usize) -> Result<Vec<Taken>> {
        let fate = self.net.fate(&self.me.address, "take");
        if let Some(hold) = self.net.hold_of(fate) {
            self.inner = None;
            return self.taken_for_nobody(hold, wait, max).await;
        }
        let asked = self.net.sets_out("take", fate).await?;
        let inner = match &mut self.inner {
            Some(inner) => inner,
            None => self
                .inner
                .insert(self.net.store("take")?.consumer(&self.me)),
        };
        let epoch = self.net.epoch();
        let taken = inner.take(wait, max).await;
        if self.net.epoch() != epoch {
            // The server went away meanwhile, and with it the connection.
            self.inner = None;
            return Err(self.net.gone("take"));
        }
        self.net.comes_back("take", asked).await?;
        taken
    }
}
