use crate::context::{Context, View};
use crate::frames::{self, Request};
use crate::json::{self, Form, Json};
use crate::upcast::{versioned, Upcast, STATE};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::{Any, TypeId};

/// The rejection of a command or query by its handler: nothing is stored, and
/// the caller gets the code and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub code: Cow<'static, str>,
    pub message: Cow<'static, str>,
}

/// Returns an error that makes a handler reject the command or query. The code
/// is for programs, the message for people. Reject before emitting events,
/// because the host has to reload an entity whose state has changed already.
pub fn reject(code: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Rejection {
    Rejection { code: code.into(), message: message.into() }
}

pub(crate) struct Event<S> {
    pub declared: &'static str,
    pub name: String, // with its version: the type of stored events
    pub typ: TypeId,
    pub schema: Vec<u8>,
    #[allow(clippy::type_complexity)]
    pub evolve: Box<dyn Fn(&mut S, &[u8]) -> Result<(), String>>,
}

pub(crate) struct Command<S> {
    pub name: &'static str,
    pub internal: bool,
    pub rejections: Option<&'static [&'static str]>,
    pub schema: Vec<u8>,
    pub reply: Vec<u8>,
    #[allow(clippy::type_complexity)]
    pub run: Box<dyn Fn(&mut Context<S>, &[u8]) -> Result<(), Rejection>>,
}

pub(crate) struct Query<S> {
    pub name: &'static str,
    pub schema: Vec<u8>,
    pub reply: Vec<u8>,
    #[allow(clippy::type_complexity)]
    pub run: Box<dyn Fn(&View, &S, &[u8], &mut Vec<u8>) -> Result<(), Rejection>>,
}

/// The options of a type.
#[derive(Default)]
pub(crate) struct Options {
    pub durable: bool,
    pub snapshot_every: u32,
    pub passivate_after: i64,
    pub always_on: bool,
    pub retain_snapshots: u32,
    pub retain_events: Option<u32>,
    pub record_principal: bool,
    pub singleton: bool,
    pub shard_key: Option<(&'static str, &'static str)>,
    pub sends: Option<&'static [&'static str]>,
    pub accepts_from: Option<&'static [&'static str]>,
    pub state_version: u32,
    pub unchecked: bool,
    pub no_schemas: bool,
}

/// An entity type whose state is an `S`. Pass it to [`serve!`](crate::serve).
/// The methods add to it, and panic if a name is used twice.
pub struct Entity<S> {
    pub(crate) name: &'static str,
    pub(crate) options: Options,
    pub(crate) initial: fn() -> S,
    pub(crate) events: Vec<Event<S>>,
    pub(crate) upcasts: Vec<Upcast>,
    pub(crate) migrations: Vec<Upcast>, // of states
    pub(crate) commands: Vec<Command<S>>,
    pub(crate) queries: Vec<Query<S>>,
}

impl<S: Json + 'static> Entity<S> {
    /// An event-sourced type. Its name has 1 to 64 characters of `a-z`, `0-9`,
    /// `-`.
    pub fn new(name: &'static str) -> Self {
        Entity {
            name,
            options: Options::default(),
            initial: S::default,
            events: Vec::new(),
            upcasts: Vec::new(),
            migrations: Vec::new(),
            commands: Vec::new(),
            queries: Vec::new(),
        }
    }

    /// A durable-state type: commands change the state through
    /// [`Context::state_mut`], and the host stores it after each change. A
    /// rejected command leaves it unchanged.
    pub fn durable(name: &'static str) -> Self {
        let mut entity = Self::new(name);
        entity.options.durable = true;
        entity
    }

    /// Sets the state of a new entity, if the default is not suitable. The
    /// function must return an equal state each time.
    pub fn initial(mut self, make: fn() -> S) -> Self {
        self.initial = make;
        self
    }

    /// Declares an event: its name in the journal, its Rust type, which can be
    /// used for only one event, and how it changes the state.
    pub fn event<E: Json + 'static>(mut self, name: &'static str, evolve: impl Fn(&mut S, E) + 'static) -> Self {
        assert!(!self.options.durable, "hostd: {}: a durable-state type has no events", self.name);
        self.unique("event", name, self.events.iter().any(|e| e.declared == name));
        let typ = TypeId::of::<E>();
        assert!(self.events.iter().all(|e| e.typ != typ), "hostd: {}: event {} has the type of another event", self.name, name);
        self.events.push(Event {
            declared: name,
            name: name.to_string(),
            typ,
            schema: json::schema_of::<E>(Form::Written),
            evolve: Box::new(move |state, payload| {
                evolve(state, json::decode(payload).map_err(|e| format!("event {}: {}", name, e))?);
                Ok(())
            }),
        });
        self
    }

    /// Declares an earlier version of an event: `version` is its number, from 1
    /// on, and `up` converts it to the next version, deterministically. The
    /// current version, which [`Entity::event`] declares, is the one after the
    /// last upcast version. It is stored with the version appended to its name,
    /// such as `placed.v2`; version 1 has the name alone.
    pub fn upcast<Old: Json + 'static, New: Json + 'static>(
        mut self,
        name: &'static str,
        version: u32,
        up: impl Fn(Old) -> New + 'static,
    ) -> Self {
        self.upcasts.push(Upcast::new(name, version, up));
        self
    }

    /// Declares an earlier version of the type's state: `version` is its
    /// number, from 1 on, and `up` converts it to the next version,
    /// deterministically. The current version is the one after the last
    /// migrated version. States that were stored before a version was declared
    /// have version 1.
    ///
    /// The stored state is not changed until a command changes the entity's
    /// state; until then it is migrated each time the entity is loaded. The
    /// states of an event-sourced type are stored in its snapshots, and are
    /// migrated only if the entity's first events were deleted.
    pub fn migrate_state<Old: Json + 'static, New: Json + 'static>(mut self, version: u32, up: impl Fn(Old) -> New + 'static) -> Self {
        self.migrations.push(Upcast::new(STATE, version, up));
        self
    }

    /// Declares a command. The handler decides: it emits events, and returns
    /// the reply, or `()` for none. A payload that cannot be decoded is
    /// rejected with `invalid_payload` before the handler runs; a command of
    /// `()` ignores its payload.
    pub fn command<C: Json + 'static, R: Json + 'static>(
        self,
        name: &'static str,
        handler: impl Fn(&mut Context<S>, C) -> Result<R, Rejection> + 'static,
    ) -> Self {
        self.add_command(name, false, handler)
    }

    /// Declares a command that only entities and timers may send.
    pub fn internal<C: Json + 'static, R: Json + 'static>(
        self,
        name: &'static str,
        handler: impl Fn(&mut Context<S>, C) -> Result<R, Rejection> + 'static,
    ) -> Self {
        self.add_command(name, true, handler)
    }

    fn add_command<C: Json + 'static, R: Json + 'static>(
        mut self,
        name: &'static str,
        internal: bool,
        handler: impl Fn(&mut Context<S>, C) -> Result<R, Rejection> + 'static,
    ) -> Self {
        self.unique("command", name, self.commands.iter().any(|c| c.name == name));
        // The sender of an internal command is another module, which may be
        // newer.
        let form = if internal { Form::Given } else { Form::Closed };
        self.commands.push(Command {
            name,
            internal,
            rejections: None,
            schema: json::schema_of::<C>(form),
            reply: json::schema_of::<R>(Form::Written),
            run: Box::new(move |c, payload| {
                let reply = handler(c, given(payload)?)?;
                put_reply(c.out, &reply);
                Ok(())
            }),
        });
        self
    }

    /// Lists the codes with which the handler of a command, which must be
    /// declared already, rejects it, so that generated clients have them as a
    /// type. The host does not enforce the list.
    pub fn rejects(mut self, command: &str, codes: &'static [&'static str]) -> Self {
        let found = self.commands.iter_mut().find(|c| c.name == command);
        found.unwrap_or_else(|| panic!("hostd: no command {} is declared", command)).rejections = Some(codes);
        self
    }

    /// Declares a query.
    pub fn query<Q: Json + 'static, R: Json + 'static>(
        mut self,
        name: &'static str,
        handler: impl Fn(&View, &S, Q) -> Result<R, Rejection> + 'static,
    ) -> Self {
        self.unique("query", name, self.queries.iter().any(|q| q.name == name));
        self.queries.push(Query {
            name,
            schema: json::schema_of::<Q>(Form::Closed),
            reply: json::schema_of::<R>(Form::Written),
            run: Box::new(move |v, state, payload, out| {
                put_reply(out, &handler(v, state, given(payload)?)?);
                Ok(())
            }),
        });
        self
    }

    fn unique(&self, noun: &str, name: &str, there: bool) {
        assert!(!name.is_empty() && name.len() <= 255, "hostd: {}: a name has 1 to 255 bytes", self.name);
        assert!(!there, "hostd: {}: {} {} is declared twice", self.name, noun, name);
    }
}

/// Decodes a client's payload.
fn given<T: Json>(payload: &[u8]) -> Result<T, Rejection> {
    json::decode(payload).map_err(|e| reject("invalid_payload", e.to_string()))
}

fn put_reply<R: Json>(out: &mut Vec<u8>, reply: &R) {
    if R::NONE {
        return;
    }
    let start = frames::begin(out, frames::OUT_REPLY);
    reply.write(out);
    frames::end(out, start);
}

/// Options; the README has a table of them.
impl<S> Entity<S> {
    /// Asks the host for a snapshot after that many events.
    pub fn snapshot_every(mut self, events: u32) -> Self {
        self.options.snapshot_every = events;
        self
    }

    /// Asks the host to remove an entity from memory once it has been idle for
    /// that many nanoseconds.
    pub fn passivate_after(mut self, idle: i64) -> Self {
        self.options.passivate_after = idle;
        self
    }

    /// Makes the entities always-on: the host activates them again by itself.
    pub fn always_on(mut self) -> Self {
        self.options.always_on = true;
        self
    }

    /// Asks the host to keep that many snapshots of an entity, 1 to 4.
    pub fn retain_snapshots(mut self, snapshots: u32) -> Self {
        self.options.retain_snapshots = snapshots;
        self
    }

    /// Lets the host delete the events that no snapshot needs, except for the
    /// last ones. Deleted events can no longer be read.
    pub fn retain_events(mut self, last: u32) -> Self {
        self.options.retain_events = Some(last);
        self
    }

    /// Makes the cluster store the caller of each client command with its
    /// record.
    pub fn record_principal(mut self) -> Self {
        self.options.record_principal = true;
        self
    }

    /// Gives the type exactly one entity, with the id `singleton`, that is
    /// always in memory.
    pub fn singleton(mut self) -> Self {
        self.options.singleton = true;
        self
    }

    /// Places related entities in one shard, for good: those whose ids are
    /// equal up to the first `until`, among the types of a `group`. Either may
    /// be empty.
    pub fn shard_key(mut self, group: &'static str, until: &'static str) -> Self {
        self.options.shard_key = Some((group, until));
        self
    }

    /// Lists the types that entities of this type may send to: names, or
    /// prefixes followed by `*`. An empty list allows none. Without this option
    /// they may send to any type.
    pub fn sends(mut self, types: &'static [&'static str]) -> Self {
        self.options.sends = Some(types);
        self
    }

    /// Lists the types whose messages entities of this type accept, in the form
    /// of `sends`.
    pub fn accepts_from(mut self, types: &'static [&'static str]) -> Self {
        self.options.accepts_from = Some(types);
        self
    }

    /// Sets the version of the form of the state: a module with the same
    /// version may load existing snapshots after a compatibility check.
    pub fn state_version(mut self, version: u32) -> Self {
        self.options.state_version = version;
        self
    }

    /// Makes the host pass payloads to the entity even if they do not match
    /// their schemas.
    pub fn unchecked(mut self) -> Self {
        self.options.unchecked = true;
        self
    }

    /// Omits the type's schemas from the manifest.
    pub fn no_schemas(mut self) -> Self {
        self.options.no_schemas = true;
        self
    }
}

/// An event in its current form: its type, and its payload.
type Upcasted<'a> = (Cow<'a, str>, Cow<'a, [u8]>);

/// An entity type without its type parameter.
pub(crate) trait Definition {
    fn name(&self) -> &'static str;
    fn link(&mut self);
    fn describe(&self, out: &mut Vec<u8>);
    fn load(&self, snapshot: Option<&[u8]>, version: u64) -> Option<Box<dyn Any>>;
    fn apply(&self, state: &mut dyn Any, name: &[u8], payload: &[u8]) -> Result<(), String>;
    fn upcast<'a>(&self, name: &'a str, payload: &'a [u8]) -> Result<Upcasted<'a>, String>;
    fn handle(&self, state: &mut dyn Any, request: &Request, id: &str, out: &mut Vec<u8>);
    fn query(&self, state: &dyn Any, request: &Request, id: &str, out: &mut Vec<u8>);
    fn snapshot(&self, state: &dyn Any, out: &mut Vec<u8>);
}

impl<S: Json + 'static> Entity<S> {
    /// The current event of a stored one, with its upcast payload.
    fn newest<'a>(&self, name: &[u8], payload: &'a [u8]) -> Result<(&Event<S>, Cow<'a, [u8]>), String> {
        let mut payload = Cow::Borrowed(payload);
        let mut name = Cow::Borrowed(name);
        loop {
            if let Some(event) = self.events.iter().find(|e| e.name.as_bytes() == &*name) {
                return Ok((event, payload));
            }
            let up = self.upcasts.iter().find(|u| u.stored.as_bytes() == &*name);
            let up = up.ok_or_else(|| format!("event type {} is not declared", String::from_utf8_lossy(&name)))?;
            payload = Cow::Owned((up.run)(&payload)?);
            name = Cow::Owned(versioned(up.name, up.version + 1).into_bytes());
        }
    }
}

impl<S: Json + 'static> Definition for Entity<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn link(&mut self) {
        crate::upcast::link(self);
        crate::upcast::link_states(self)
    }

    fn describe(&self, out: &mut Vec<u8>) {
        crate::describe::entity(self, out)
    }

    fn load(&self, snapshot: Option<&[u8]>, version: u64) -> Option<Box<dyn Any>> {
        let mut bytes = match snapshot {
            None => return Some(Box::new((self.initial)())),
            Some(bytes) => Cow::Borrowed(bytes),
        };
        if version != 0 && version != u64::from(self.options.state_version) {
            let first = self.migrations.iter().position(|m| u64::from(m.version) == version)?;
            for m in &self.migrations[first..] {
                bytes = Cow::Owned((m.run)(&bytes).ok()?);
            }
        }
        let state: S = json::decode(&bytes).ok()?;
        Some(Box::new(state))
    }

    fn apply(&self, state: &mut dyn Any, name: &[u8], payload: &[u8]) -> Result<(), String> {
        let (event, payload) = self.newest(name, payload)?;
        (event.evolve)(own(state), &payload)
    }

    /// Events in the current form, and undeclared ones, are returned unchanged.
    fn upcast<'a>(&self, name: &'a str, payload: &'a [u8]) -> Result<Upcasted<'a>, String> {
        let older = if self.options.durable { &self.migrations } else { &self.upcasts };
        let mut made = (Cow::Borrowed(name), Cow::Borrowed(payload));
        while let Some(u) = older.iter().find(|u| u.stored == made.0) {
            let payload = (u.run)(&made.1)?;
            made = (Cow::Owned(versioned(u.name, u.version + 1)), Cow::Owned(payload));
        }
        Ok(made)
    }

    fn handle(&self, state: &mut dyn Any, request: &Request, id: &str, out: &mut Vec<u8>) {
        let state: &mut S = own(state);
        let mut before = Vec::new();
        if self.options.durable {
            state.write(&mut before);
        }
        let mut c = Context::new(self, state, View::new(self.name, id, request), out);
        let result = match self.commands.iter().find(|c| c.name.as_bytes() == request.name) {
            None => Err(reject("unknown_name", "no such command")),
            Some(command) => (command.run)(&mut c, request.payload),
        };
        let rejected = result.is_err();
        if let Err(rejection) = result {
            put_rejection(out, &rejection);
        }
        if !self.options.durable {
            return;
        }
        if rejected {
            *state = json::decode(&before).expect("hostd: the state cannot be read back");
            return;
        }
        let mut after = Vec::new();
        state.write(&mut after);
        if after != before {
            let start = frames::begin(out, frames::OUT_STATE);
            out.extend_from_slice(&after);
            frames::end(out, start);
        }
    }

    fn query(&self, state: &dyn Any, request: &Request, id: &str, out: &mut Vec<u8>) {
        let state: &S = state.downcast_ref().expect("hostd: the state has a different type");
        let view = View::new(self.name, id, request);
        let result = match self.queries.iter().find(|q| q.name.as_bytes() == request.name) {
            None => Err(reject("unknown_name", "no such query")),
            Some(query) => (query.run)(&view, state, request.payload, out),
        };
        if let Err(rejection) = result {
            put_rejection(out, &rejection);
        }
    }

    fn snapshot(&self, state: &dyn Any, out: &mut Vec<u8>) {
        let state: &S = state.downcast_ref().expect("hostd: the state has a different type");
        state.write(out);
    }
}

fn own<S: 'static>(state: &mut dyn Any) -> &mut S {
    state.downcast_mut().expect("hostd: the state has a different type")
}

fn put_rejection(out: &mut Vec<u8>, rejection: &Rejection) {
    let start = frames::begin(out, frames::OUT_REJECT);
    frames::put_text(out, &rejection.code);
    out.extend_from_slice(rejection.message.as_bytes());
    frames::end(out, start);
}
