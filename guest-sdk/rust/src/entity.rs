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

/// A handler's refusal: nothing is stored, and the caller gets the code and the
/// message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub code: Cow<'static, str>,
    pub message: Cow<'static, str>,
}

/// Makes what a handler returns to refuse a command or a query. Programs act on
/// the code, people read the message. Refuse before emitting: an entity that
/// has already evolved must be loaded again by the host.
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

/// What a type asks of the host.
#[derive(Default)]
pub(crate) struct Options {
    pub durable: bool,
    pub snapshot_every: u32,
    pub passivate_after: i64,
    pub remember: bool,
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

/// An entity type whose state is an `S`. Give it to [`serve!`](crate::serve).
/// The methods add to it, and panic where a name is there twice.
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
    /// A type that keeps events. Its name has 1 to 64 of `a-z`, `0-9`, `-`.
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

    /// A type that keeps its latest state: commands change it through
    /// [`Context::state_mut`], and it is stored where it has changed. A command
    /// that is rejected leaves it as it was.
    pub fn durable(name: &'static str) -> Self {
        let mut entity = Self::new(name);
        entity.options.durable = true;
        entity
    }

    /// The state of a new entity, where the default will not do. It is to be
    /// equal each time.
    pub fn initial(mut self, make: fn() -> S) -> Self {
        self.initial = make;
        self
    }

    /// Declares an event: its name in the journal, its Rust type, of which an
    /// event has its own, and how it changes the state.
    pub fn event<E: Json + 'static>(mut self, name: &'static str, evolve: impl Fn(&mut S, E) + 'static) -> Self {
        assert!(!self.options.durable, "hostd: {}: a durable-state type has no events", self.name);
        self.unique("event", name, self.events.iter().any(|e| e.declared == name));
        let typ = TypeId::of::<E>();
        assert!(self.events.iter().all(|e| e.typ != typ), "hostd: {}: the type of event {} is that of another", self.name, name);
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

    /// Declares that the event of a name has had another form before: `version`
    /// is its number, from 1 on, and `up` makes the form of the version after
    /// it, deterministically. What [`Entity::event`] declares is the version
    /// after the last that is upcast, and is stored with the version behind its
    /// name, such as `placed.v2`; version 1 has the name alone.
    pub fn upcast<Old: Json + 'static, New: Json + 'static>(
        mut self,
        name: &'static str,
        version: u32,
        up: impl Fn(Old) -> New + 'static,
    ) -> Self {
        self.upcasts.push(Upcast::new(name, version, up));
        self
    }

    /// Declares that the states of a type have had another form before: `version` is its number, from 1 on, and `up` makes the form of
    /// the version after it, deterministically. The state is the version after
    /// the last that is migrated. States that were stored before a version was
    /// declared are of version 1.
    ///
    /// What is stored stays as it is until a command changes the entity's
    /// state: until then it is migrated each time that the entity is loaded. The
    /// states of an event-sourced type are stored in its snapshots, and are
    /// migrated if the first events of an entity are gone.
    pub fn migrate_state<Old: Json + 'static, New: Json + 'static>(mut self, version: u32, up: impl Fn(Old) -> New + 'static) -> Self {
        self.migrations.push(Upcast::new(STATE, version, up));
        self
    }

    /// Declares a command. The handler decides: it emits events, and returns
    /// the reply, which is `()` for none. A payload that cannot be read is
    /// rejected with `invalid_payload` before; a command of `()` reads none.
    pub fn command<C: Json + 'static, R: Json + 'static>(
        self,
        name: &'static str,
        handler: impl Fn(&mut Context<S>, C) -> Result<R, Rejection> + 'static,
    ) -> Self {
        self.add_command(name, false, handler)
    }

    /// Declares a command that clients may not send: it comes from entities and
    /// timers only.
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
        // An internal command comes from another module, which may be newer.
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

    /// Lists the codes by which the handler of a command, which is declared
    /// before, rejects it, so that clients have them as a type. The host does
    /// not hold the handler to them.
    pub fn rejects(mut self, command: &str, codes: &'static [&'static str]) -> Self {
        let found = self.commands.iter_mut().find(|c| c.name == command);
        found.unwrap_or_else(|| panic!("hostd: there is no command {} to be rejected", command)).rejections = Some(codes);
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

/// Reads what a client has sent.
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
    /// Asks for a snapshot after that many events.
    pub fn snapshot_every(mut self, events: u32) -> Self {
        self.options.snapshot_every = events;
        self
    }

    /// Asks the host to drop an entity from memory after it was idle for so
    /// many nanoseconds.
    pub fn passivate_after(mut self, idle: i64) -> Self {
        self.options.passivate_after = idle;
        self
    }

    /// Asks the host to have the entities in memory without being asked for.
    pub fn remember_entities(mut self) -> Self {
        self.options.remember = true;
        self
    }

    /// Asks the host to keep that many snapshots of an entity, 1 to 4.
    pub fn retain_snapshots(mut self, snapshots: u32) -> Self {
        self.options.retain_snapshots = snapshots;
        self
    }

    /// Lets the host cut the events that no snapshot needs, but for the last so
    /// many. What is cut cannot be read any more.
    pub fn retain_events(mut self, last: u32) -> Self {
        self.options.retain_events = Some(last);
        self
    }

    /// Has who called kept with the record of each command of a client.
    pub fn record_principal(mut self) -> Self {
        self.options.record_principal = true;
        self
    }

    /// Gives the type one entity, with the id `singleton`, in memory at all
    /// times.
    pub fn singleton(mut self) -> Self {
        self.options.singleton = true;
        self
    }

    /// Puts entities that belong together into one shard, for good: those whose
    /// ids are the same up to the first `until`, among the types of a `group`.
    /// Either may be empty.
    pub fn shard_key(mut self, group: &'static str, until: &'static str) -> Self {
        self.options.shard_key = Some((group, until));
        self
    }

    /// Names the types that entities of this one may send to: names, or the
    /// beginnings of some with `*` behind them; none: to nobody. Without it
    /// they may send to any.
    pub fn sends(mut self, types: &'static [&'static str]) -> Self {
        self.options.sends = Some(types);
        self
    }

    /// Names the types that entities of this one take messages from, likewise.
    pub fn accepts_from(mut self, types: &'static [&'static str]) -> Self {
        self.options.accepts_from = Some(types);
        self
    }

    /// Numbers the form of the state: a fix with the same number may keep the
    /// snapshots, once verified.
    pub fn state_version(mut self, version: u32) -> Self {
        self.options.state_version = version;
        self
    }

    /// Has payloads come though they do not fit their schemas.
    pub fn unchecked(mut self) -> Self {
        self.options.unchecked = true;
        self
    }

    /// Keeps schemas out of the manifest.
    pub fn no_schemas(mut self) -> Self {
        self.options.no_schemas = true;
        self
    }
}

/// An event in today's form: its type, and its payload.
type Upcasted<'a> = (Cow<'a, str>, Cow<'a, [u8]>);

/// An entity type with its state out of sight.
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
    /// The event that a stored one is now, with its payload.
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

    /// What is of today's form, and what is not declared, stays as it is.
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
        let state: &S = state.downcast_ref().expect("hostd: a state of another type");
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
        let state: &S = state.downcast_ref().expect("hostd: a state of another type");
        state.write(out);
    }
}

fn own<S: 'static>(state: &mut dyn Any) -> &mut S {
    state.downcast_mut().expect("hostd: a state of another type")
}

fn put_rejection(out: &mut Vec<u8>, rejection: &Rejection) {
    let start = frames::begin(out, frames::OUT_REJECT);
    frames::put_text(out, &rejection.code);
    out.extend_from_slice(rejection.message.as_bytes());
    frames::end(out, start);
}
