//! Bindings of the world `job`, generated from `wit/`. WASI itself comes from wasmtime-wasi.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

wasmtime::component::bindgen!({
    path: "../../../wit",
    world: "wasmcron:job/job",
    imports: {
        "wasmcron:job/checkpoint.save": async | trappable,
        "wasmcron:job/state": async | trappable,
        "wasmcron:job/secrets": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    require_store_data_send: true,
    with: {
        "wasi:io": wasmtime_wasi::p2::bindings::io,
        "wasi:cli": wasmtime_wasi::p2::bindings::cli,
        "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
        "wasi:filesystem": wasmtime_wasi::p2::bindings::filesystem,
        "wasi:random": wasmtime_wasi::p2::bindings::random,
        "wasi:sockets": wasmtime_wasi::p2::bindings::sockets,
        "wasi:http": wasmtime_wasi_http::p2::bindings::http,
    },
});

/// The export that a plugin may have beside those of the world `job`. WIT knows no optional exports,
/// so it is a world of its own that a plugin fits or does not.
pub mod migrator {
    wasmtime::component::bindgen!({
        path: "../../../wit",
        inline: "
            package wasmcron:host;
            world migrator {
                export wasmcron:job/migrate@0.1.0;
            }
        ",
        world: "wasmcron:host/migrator",
        exports: { default: async },
        require_store_data_send: true,
    });
}
