//! SDK for hostd entities written in Rust. It needs no other crate and no
//! standard library but `alloc`, and builds with Rust 1.63 or later.
//!
//! An entity type is a state, and functions that decide on commands, apply
//! events to the state and answer queries:
//!
//! ```ignore
//! use hostd::{json, serve, Context, Entity, Rejection};
//!
//! json! { struct State { total: i64 } }
//! json! { struct Add { amount: i64 } }
//! json! { struct Added { amount: i64 } }
//! json! { struct Total { total: i64 } }
//!
//! fn add(c: &mut Context<State>, cmd: Add) -> Result<Total, Rejection> {
//!     c.emit(&Added { amount: cmd.amount }); // the state has changed
//!     Ok(Total { total: c.state().total })
//! }
//!
//! serve!("counter", "1.0.0", Entity::<State>::new("counter")
//!     .event("added", |s, e: Added| s.total += e.amount)
//!     .command("add", add));
//! ```
//!
//! `emit` encodes the event, decodes it from the bytes that it wrote, and
//! applies it to the state, so that a live entity and a replayed one take the
//! same path. Event functions must depend only on the state and the event.
//!
//! Mistakes in declarations, such as two commands with one name, panic when the
//! module starts. A panic is a fault: its text is in the node's log. Invalid
//! input from a caller is rejected instead.
#![no_std]

extern crate alloc;

mod context;
mod describe;
mod entity;
mod frames;
mod guest;
pub mod json;
mod schedule;
mod upcast;

pub use context::{Context, Missed, Principal, Schedule, Source, View};
pub use entity::{reject, Entity, Rejection};
pub use guest::{Guest, Module};
pub use json::{Json, Raw};
pub use schedule::valid_schedule;

/// Durations in nanoseconds, the unit of [`View::now`].
pub const MILLISECOND: i64 = 1_000_000;
/// A second in nanoseconds.
pub const SECOND: i64 = 1_000 * MILLISECOND;
/// A minute in nanoseconds.
pub const MINUTE: i64 = 60 * SECOND;
/// An hour in nanoseconds.
pub const HOUR: i64 = 60 * MINUTE;

/// Levels of [`View::log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

#[cfg(target_arch = "wasm32")]
mod host {
    #[link(wasm_import_module = "hostd")]
    extern "C" {
        pub fn log(level: i32, line: *const u8, length: usize);
    }
}

/// Writes a line to the node's log. The host keeps 32 lines of 1 KiB per call.
pub fn log(level: Level, line: &str) {
    #[cfg(target_arch = "wasm32")]
    unsafe {
        host::log(level as i32, line.as_ptr(), line.len())
    }
    #[cfg(not(target_arch = "wasm32"))]
    let _ = (level, line);
}

/// Makes entity types the module's: its name, its version and the types. It
/// defines the module's exports, so use it once, in the root of the crate.
#[macro_export]
macro_rules! serve {
    ($name:expr, $version:expr, $($entity:expr),+ $(,)?) => {
        static mut HOSTD_GUEST: ::core::option::Option<$crate::Guest> = ::core::option::Option::None;

        fn hostd_guest() -> &'static mut $crate::Guest {
            // Calls do not overlap, and there is only one thread.
            let guest = unsafe { &mut *::core::ptr::addr_of_mut!(HOSTD_GUEST) };
            guest.get_or_insert_with(|| $crate::Module::new($name, $version)$(.with($entity))+.guest())
        }

        #[no_mangle]
        pub extern "C" fn _initialize() {
            ::std::panic::set_hook(::std::boxed::Box::new(|info| {
                $crate::log($crate::Level::Error, &::std::string::ToString::to_string(info))
            }));
            hostd_guest();
        }

        #[no_mangle]
        pub extern "C" fn hostd_abi() -> i32 {
            1
        }

        #[no_mangle]
        pub extern "C" fn hostd_describe() -> u64 {
            $crate::Guest::span(hostd_guest().describe())
        }

        #[no_mangle]
        pub extern "C" fn hostd_buffer(size: u32) -> *const u8 {
            hostd_guest().buffer(size as usize)
        }

        #[no_mangle]
        pub extern "C" fn hostd_load(kind: u32, entity: u64, length: u32) -> i32 {
            hostd_guest().load(kind as usize, entity, length as usize)
        }

        #[no_mangle]
        pub extern "C" fn hostd_apply(entity: u64, length: u32) -> i32 {
            hostd_guest().apply(entity, length as usize)
        }

        #[no_mangle]
        pub extern "C" fn hostd_handle(entity: u64, length: u32) -> u64 {
            $crate::Guest::span(hostd_guest().handle(entity, length as usize))
        }

        #[no_mangle]
        pub extern "C" fn hostd_query(entity: u64, length: u32) -> u64 {
            $crate::Guest::span(hostd_guest().query(entity, length as usize))
        }

        #[no_mangle]
        pub extern "C" fn hostd_snapshot(entity: u64) -> u64 {
            $crate::Guest::span(hostd_guest().snapshot(entity))
        }

        #[no_mangle]
        pub extern "C" fn hostd_upcast(kind: u32, length: u32) -> u64 {
            $crate::Guest::span(hostd_guest().upcast(kind as usize, length as usize))
        }

        #[no_mangle]
        pub extern "C" fn hostd_drop(entity: u64) {
            hostd_guest().drop_entity(entity)
        }
    };
}
