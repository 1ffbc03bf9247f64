use crate::entity::Entity;
use crate::json::{self, Form, Json};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::TypeId;

/// Converts a version of an event, or of a state, to the next version.
pub(crate) struct Upcast {
    pub name: &'static str,
    pub version: u32,
    pub stored: String, // type of stored events of this version
    pub takes: TypeId,
    pub gives: TypeId,
    pub schema: Vec<u8>,
    #[allow(clippy::type_complexity)]
    pub run: Box<dyn Fn(&[u8]) -> Result<Vec<u8>, String>>,
}

/// The maximum number of versions of an event.
const MAX_VERSION: u32 = 1000;

/// The name of states among upcasts.
pub(crate) const STATE: &str = "state";

/// The type of the stored events of a version.
pub(crate) fn versioned(name: &str, version: u32) -> String {
    if version == 1 {
        name.to_string()
    } else {
        format!("{}.v{}", name, version)
    }
}

impl Upcast {
    pub fn new<Old: Json + 'static, New: Json + 'static>(name: &'static str, version: u32, up: impl Fn(Old) -> New + 'static) -> Self {
        assert!((1..=MAX_VERSION).contains(&version), "hostd: {}: a version must be between 1 and {}", name, MAX_VERSION);
        let stored = versioned(name, version);
        let what = stored.clone();
        Upcast {
            name,
            version,
            stored,
            takes: TypeId::of::<Old>(),
            gives: TypeId::of::<New>(),
            schema: json::schema_of::<Old>(Form::Written),
            run: Box::new(move |payload| {
                let made = up(json::decode(payload).map_err(|e| format!("{}: {}", what, e))?);
                let mut out = Vec::new();
                made.write(&mut out);
                Ok(out)
            }),
        }
    }
}

/// Assigns versions to the events that have upcasts, after all declarations.
pub(crate) fn link<S>(entity: &mut Entity<S>) {
    entity.upcasts.sort_by(|a, b| (a.name, a.version).cmp(&(b.name, b.version)));
    for (i, u) in entity.upcasts.iter().enumerate() {
        let what = format!("hostd: {}: event {} of version {}", entity.name, u.name, u.version);
        if let Some(after) = entity.upcasts.get(i + 1).filter(|after| after.name == u.name) {
            let fits = after.version == u.version + 1 && after.takes == u.gives;
            assert!(fits, "{} must be upcast to the type of the next version", what);
            continue;
        }
        let event = entity.events.iter_mut().find(|e| e.declared == u.name && e.typ == u.gives);
        event.unwrap_or_else(|| panic!("{} must be upcast to the event's current type", what)).name = versioned(u.name, u.version + 1);
    }
    let mut names: Vec<&str> = entity.events.iter().map(|e| &*e.name).collect();
    names.extend(entity.upcasts.iter().map(|u| &*u.stored));
    names.sort_unstable();
    for pair in names.windows(2) {
        assert!(pair[0] != pair[1], "hostd: {}: event type {} is declared twice", entity.name, pair[0]);
    }
}

/// Sorts the migrations of states, and derives the current version from them.
pub(crate) fn link_states<S: 'static>(entity: &mut Entity<S>) {
    entity.migrations.sort_by_key(|m| m.version);
    for (i, m) in entity.migrations.iter().enumerate() {
        let what = format!("hostd: {}: state of version {}", entity.name, m.version);
        if let Some(after) = entity.migrations.get(i + 1) {
            let fits = after.version == m.version + 1 && after.takes == m.gives;
            assert!(fits, "{} must be migrated to the type of the next version", what);
            continue;
        }
        assert!(m.gives == TypeId::of::<S>(), "{} must be migrated to the state's current type", what);
        let said = entity.options.state_version;
        assert!(said == 0 || said == m.version + 1, "{} is the last version with a migration, but state_version is {}", what, said);
        entity.options.state_version = m.version + 1;
    }
}
