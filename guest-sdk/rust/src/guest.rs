use crate::entity::{Definition, Entity};
use crate::frames::{self, Frames, Request};
use crate::json::Json;
use crate::Level;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;

/// A module under construction by [`serve!`](crate::serve).
pub struct Module {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) types: Vec<Box<dyn Definition>>,
}

impl Module {
    pub fn new(name: &'static str, version: &'static str) -> Self {
        Module { name, version, types: Vec::new() }
    }

    /// Adds an entity type.
    pub fn with<S: Json + 'static>(mut self, mut entity: Entity<S>) -> Self {
        assert!(self.types.iter().all(|t| t.name() != entity.name), "hostd: entity type {} is registered twice", entity.name);
        entity.link();
        self.types.push(Box::new(entity));
        self
    }

    /// Returns the guest, after all types were added.
    pub fn guest(self) -> Guest {
        Guest { module: self, input: Vec::new(), out: Vec::new(), entities: Vec::new() }
    }
}

struct Slot {
    typ: usize,
    id: String,
    state: Box<dyn Any>,
}

/// The state of an instance; the functions that the host calls are wrappers
/// around it. Results are valid until the next call.
pub struct Guest {
    module: Module,
    input: Vec<u8>,
    out: Vec<u8>,
    entities: Vec<Option<Slot>>, // by handle
}

/// Requests of a host are always smaller.
const MAX_INPUT: usize = 4 << 20;

/// Limits handles, so that a wrong one does not exhaust memory.
const MAX_ENTITIES: u64 = 1 << 26;

impl Guest {
    /// The address and the length of bytes, packed as the contract requires.
    pub fn span(bytes: &[u8]) -> u64 {
        if bytes.is_empty() {
            return 0;
        }
        (bytes.as_ptr() as usize as u64) << 32 | bytes.len() as u64
    }

    pub fn describe(&mut self) -> &[u8] {
        self.out.clear();
        crate::describe::module(&self.module, &mut self.out);
        &self.out
    }

    pub fn buffer(&mut self, size: usize) -> *const u8 {
        let more = size.saturating_sub(self.input.len());
        if size > MAX_INPUT || self.input.try_reserve(more).is_err() {
            return core::ptr::null();
        }
        self.input.resize(self.input.len() + more, 0);
        self.input.as_ptr()
    }

    pub fn load(&mut self, typ: usize, handle: u64, length: usize) -> i32 {
        let request = Request::read(&self.input[..length]);
        let state = match self.module.types[typ].load(request.snapshot, request.state_version) {
            Some(state) => state,
            None => return 1,
        };
        let more = (handle.min(MAX_ENTITIES) as usize + 1).saturating_sub(self.entities.len());
        if handle >= MAX_ENTITIES || self.entities.try_reserve(more).is_err() {
            return 2;
        }
        self.entities.resize_with(self.entities.len() + more, || None);
        let id = String::from(frames::utf8(request.entity_id));
        self.entities[handle as usize] = Some(Slot { typ, id, state });
        0
    }

    pub fn apply(&mut self, handle: u64, length: usize) -> i32 {
        let slot = slot(&mut self.entities, handle);
        let typ = &self.module.types[slot.typ];
        for (kind, bytes) in Frames(&self.input[..length]) {
            if kind != frames::IN_EVENT {
                continue;
            }
            let (name, payload) = frames::text(&bytes[16..]); // after its sequence and time
            if let Err(reason) = typ.apply(slot.state.as_mut(), name, payload) {
                crate::log(Level::Error, &reason);
                return 1;
            }
        }
        0
    }

    pub fn handle(&mut self, handle: u64, length: usize) -> &[u8] {
        let slot = slot(&mut self.entities, handle);
        let request = Request::read(&self.input[..length]);
        self.out.clear();
        self.module.types[slot.typ].handle(slot.state.as_mut(), &request, &slot.id, &mut self.out);
        &self.out
    }

    pub fn query(&mut self, handle: u64, length: usize) -> &[u8] {
        let slot = slot(&mut self.entities, handle);
        let request = Request::read(&self.input[..length]);
        self.out.clear();
        self.module.types[slot.typ].query(slot.state.as_ref(), &request, &slot.id, &mut self.out);
        &self.out
    }

    pub fn snapshot(&mut self, handle: u64) -> &[u8] {
        let slot = slot(&mut self.entities, handle);
        self.out.clear();
        self.module.types[slot.typ].snapshot(slot.state.as_ref(), &mut self.out);
        &self.out
    }

    /// Returns the events in the input in their current form. It panics on
    /// events that it cannot decode.
    pub fn upcast(&mut self, typ: usize, length: usize) -> &[u8] {
        self.out.clear();
        for (kind, bytes) in Frames(&self.input[..length]) {
            if kind != frames::IN_EVENT {
                continue;
            }
            let (name, payload) = frames::text(&bytes[16..]); // after its sequence and time
            let (name, payload) = self.module.types[typ].upcast(frames::utf8(name), payload).unwrap_or_else(|reason| panic!("hostd: {}", reason));
            let start = frames::begin(&mut self.out, frames::OUT_EVENT);
            frames::put_text(&mut self.out, &name);
            self.out.extend_from_slice(&payload);
            frames::end(&mut self.out, start);
        }
        &self.out
    }

    pub fn drop_entity(&mut self, handle: u64) {
        if let Some(slot) = self.entities.get_mut(handle as usize) {
            *slot = None;
        }
    }
}

fn slot(entities: &mut [Option<Slot>], handle: u64) -> &mut Slot {
    entities.get_mut(handle as usize).and_then(Option::as_mut).expect("hostd: no entity has this handle")
}
