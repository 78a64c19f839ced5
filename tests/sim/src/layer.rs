//! A store that is another store with some verbs changed: what witnesses and mutants are made of.

use crate::verbs::words::*;

/// One role of a layered store.
macro_rules! role {
    (Queue { $( fn $verb:ident($($arg:ident: [$($ty:tt)*]),*) -> [$($answer:tt)*]; )* }) => {
        #[async_trait]
        impl<L: Layer> Queue for Layered<L> {
            fn consumer(&self, me: &PodRef) -> Box<dyn Consumer> {
                self.0.consumer(me)
            }
            $( async fn $verb(&self, $($arg: $($ty)*),*) -> Result<$($answer)*> {
                self.0.$verb($($arg),*).await
            } )*
        }
    };
    (Control { $( fn $verb:ident($($arg:ident: [$($ty:tt)*]),*) -> [$($answer:tt)*]; )* }) => {
        #[async_trait]
        impl<L: Layer> Control for Layered<L> {
            fn listen(&self) -> mpsc::Receiver<Wake> {
                self.0.inner().listen()
            }
            $( async fn $verb(&self, $($arg: $($ty)*),*) -> Result<$($answer)*> {
                self.0.$verb($($arg),*).await
            } )*
        }
    };
    ($role:ident { $( fn $verb:ident($($arg:ident: [$($ty:tt)*]),*) -> [$($answer:tt)*]; )* }) => {
        #[async_trait]
        impl<L: Layer> $role for Layered<L> {
            $( async fn $verb(&self, $($arg: $($ty)*),*) -> Result<$($answer)*> {
                self.0.$verb($($arg),*).await
            } )*
        }
    };
}

macro_rules! layer {
    ($($role:ident { $( fn $verb:ident($($arg:ident: [$($ty:tt)*]),* $(,)?) -> [$($answer:tt)*]; )* })*) => {
        /// A store over another one. Each verb asks the inner store unless the layer says otherwise.
        #[async_trait]
        #[allow(missing_docs, reason = "the verbs are those of the store's roles")]
        pub trait Layer: Send + Sync + 'static {
            /// The store below.
            fn inner(&self) -> &Arc<dyn Store>;

            fn consumer(&self, me: &PodRef) -> Box<dyn Consumer> {
                self.inner().consumer(me)
            }

            $($(
                async fn $verb(&self, $($arg: $($ty)*),*) -> Result<$($answer)*> {
                    self.inner().$verb($($arg),*).await
                }
            )*)*
        }

        /// Makes a store of a layer.
        pub struct Layered<L>(pub L);

        $( role!($role { $( fn $verb($($arg: [$($ty)*]),*) -> [$($answer)*]; )* }); )*
    };
}

for_each_verb!(layer);
