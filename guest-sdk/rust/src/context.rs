use crate::entity::Entity;
use crate::frames::{self, text, utf8, Request};
use crate::json::Json;
use crate::Level;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::TypeId;
use core::ops::Deref;

/// The sender of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Client,
    Timer,
    Entity { entity_type: String, id: String },
}

/// The identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// `token`, `jwt`, `certificate`, or `anonymous` for a caller without a
    /// credential.
    pub kind: String,
    /// Unique within its kind; empty for anonymous callers.
    pub name: String,
    pub groups: Vec<String>,
}

/// The interface of a query handler to the host.
pub struct View<'a> {
    entity_type: &'a str,
    id: &'a str,
    request: &'a Request<'a>,
}

impl<'a> View<'a> {
    pub(crate) fn new(entity_type: &'a str, id: &'a str, request: &'a Request<'a>) -> Self {
        View { entity_type, id, request }
    }

    /// The name of the entity's type.
    pub fn entity_type(&self) -> &'a str {
        self.entity_type
    }

    /// The entity's id.
    pub fn entity_id(&self) -> &'a str {
        self.id
    }

    /// The number of the entity's last event before this call.
    pub fn sequence(&self) -> u64 {
        self.request.sequence
    }

    /// The time that the host set for this call, in nanoseconds since 1970 UTC.
    /// It never runs backwards for an entity.
    pub fn now(&self) -> i64 {
        self.request.now
    }

    /// The caller. It is `None` if the cluster does not authenticate callers,
    /// and for commands that entities and timers send. A handler that
    /// authorizes by owner should then reject.
    pub fn principal(&self) -> Option<Principal> {
        let (kind, rest) = text(self.request.principal?);
        let (name, mut rest) = text(rest);
        let mut groups = Vec::new();
        while !rest.is_empty() {
            let (group, after) = text(rest);
            groups.push(String::from(utf8(group)));
            rest = after;
        }
        Some(Principal { kind: String::from(utf8(kind)), name: String::from(utf8(name)), groups })
    }

    /// The value that operators have set for the entity's type under a name;
    /// `None` if it is not set. Event functions cannot read settings: put
    /// whatever an event needs into the event.
    pub fn setting(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.request.settings;
        while !rest.is_empty() {
            let (found, after) = text(rest);
            let (value, after) = text(after);
            if found == name.as_bytes() {
                return Some(utf8(value));
            }
            rest = after;
        }
        None
    }

    /// Writes a line to the node's log.
    pub fn log(&self, level: Level, line: &str) {
        crate::log(level, line)
    }
}

/// What happens to the ticks of a schedule that could not fire when they were
/// due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// One command, late, for all of them.
    Once,
    /// A command for each, up to 100 in a row.
    All,
    /// None.
    Skip,
}

/// When a scheduled command is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule<'a> {
    /// The period in nanoseconds, at least 100 ms.
    Every(i64),
    /// Five fields of the wall clock of a time zone, where an empty zone means
    /// UTC, such as `0 3 * * mon-fri`; or `@daily` and the like.
    Cron(&'a str, &'a str),
}

/// The interface of a command handler to the host.
pub struct Context<'a, S> {
    view: View<'a>,
    entity: &'a Entity<S>,
    state: &'a mut S,
    pub(crate) out: &'a mut Vec<u8>,
    random: u64,
}

impl<'a, S> Deref for Context<'a, S> {
    type Target = View<'a>;

    fn deref(&self) -> &View<'a> {
        &self.view
    }
}

impl<'a, S> Context<'a, S> {
    pub(crate) fn new(entity: &'a Entity<S>, state: &'a mut S, view: View<'a>, out: &'a mut Vec<u8>) -> Self {
        let random = view.request.seed;
        Context { view, entity, state, out, random }
    }

    /// The state, including the events emitted so far.
    pub fn state(&self) -> &S {
        self.state
    }

    /// The mutable state of a durable-state type. It panics for other types,
    /// whose states change only through events.
    pub fn state_mut(&mut self) -> &mut S {
        assert!(self.entity.options.durable, "hostd: {}: only events change the state of an event-sourced type", self.entity.name);
        self.state
    }

    /// The command's id, under which it takes effect only once.
    pub fn command_id(&self) -> &'a str {
        utf8(self.view.request.command_id)
    }

    /// The sender of this command.
    pub fn source(&self) -> Source {
        self.view.request.source()
    }

    /// When the timer or schedule that sent this command was due; 0 for any
    /// other command.
    pub fn due(&self) -> i64 {
        self.view.request.due
    }

    /// The next number of the command's own random sequence: the same command
    /// on the same state draws the same numbers. Not suitable for secrets.
    pub fn random(&mut self) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Appends an event and applies it to the state. It panics if the type of
    /// the value was not declared with [`Entity::event`].
    pub fn emit<E: Json + 'static>(&mut self, event: &E) {
        self.emit_tagged(event, &[])
    }

    /// [`Context::emit`] with tags. Events with a tag can be read across
    /// entities.
    pub fn emit_tagged<E: Json + 'static>(&mut self, event: &E, tags: &[&str]) {
        let typ = TypeId::of::<E>();
        let declared = self.entity.events.iter().find(|e| e.typ == typ);
        let declared = declared.unwrap_or_else(|| {
            panic!("hostd: {}: {} is not an event of this type", self.entity.name, core::any::type_name::<E>())
        });
        let start = frames::begin(self.out, frames::OUT_EVENT);
        frames::put_text(self.out, &declared.name);
        let payload = self.out.len();
        event.write(self.out);
        frames::end(self.out, start);
        if let Err(reason) = (declared.evolve)(self.state, &self.out[payload..]) {
            panic!("hostd: the emitted event cannot be decoded: {}", reason);
        }
        for tag in tags {
            self.frame(frames::OUT_TAG, |out| out.extend_from_slice(tag.as_bytes()));
        }
    }

    /// Sends a command to another entity, exactly once, after this command has
    /// been stored.
    pub fn send(&mut self, entity_type: &str, id: &str, command: &str, payload: &impl Json) {
        self.frame(frames::OUT_SEND, |out| {
            for text in [entity_type, id, command] {
                frames::put_text(out, text);
            }
            payload.write(out);
        })
    }

    /// [`Context::send`], with the outcome sent back as a command of this
    /// entity: `on_reply` with the reply as its payload, or `on_reject` with
    /// `{"code":...,"message":...}`.
    pub fn send_with_answer(&mut self, entity_type: &str, id: &str, command: &str, on_reply: &str, on_reject: &str, payload: &impl Json) {
        self.frame(frames::OUT_SEND_WITH_ANSWER, |out| {
            for text in [entity_type, id, command, on_reply, on_reject] {
                frames::put_text(out, text);
            }
            payload.write(out);
        })
    }

    /// Makes the host send this entity a command at a time, in nanoseconds
    /// since 1970 UTC. It replaces a timer of the same name. A timer that is
    /// due at `i64::MAX`, on 2262-04-11, never fires. If the time is before
    /// 1970, which can also result from an overflow, the host rejects the
    /// command with `invalid_argument`: add with `saturating_add`.
    pub fn set_timer(&mut self, name: &str, due: i64, command: &str, payload: &impl Json) {
        self.frame(frames::OUT_SET_TIMER, |out| {
            frames::put_text(out, name);
            out.extend_from_slice(&due.to_le_bytes());
            frames::put_text(out, command);
            payload.write(out);
        })
    }

    /// Removes a timer or a schedule, if there is one of that name.
    pub fn cancel_timer(&mut self, name: &str) {
        self.frame(frames::OUT_CANCEL_TIMER, |out| out.extend_from_slice(name.as_bytes()))
    }

    /// Makes the host send this entity a command periodically. It replaces a
    /// timer or a schedule of the same name and restarts its period, so call it
    /// only once. If the expression or the zone is not valid, the command is
    /// rejected with `invalid_argument`: see [`crate::valid_schedule`].
    pub fn schedule(&mut self, name: &str, when: Schedule, missed: Missed, command: &str, payload: &impl Json) {
        let every;
        let (expression, zone) = match when {
            Schedule::Every(nanoseconds) => {
                every = format!("@every {}ns", nanoseconds);
                (&*every, "")
            }
            Schedule::Cron(expression, zone) => (expression, zone),
        };
        self.frame(frames::OUT_SET_SCHEDULE, |out| {
            for text in [name, expression, zone] {
                frames::put_text(out, text);
            }
            out.push(missed as u8);
            frames::put_text(out, command);
            payload.write(out);
        })
    }

    /// Asks the host to remove the entity from memory after this command.
    pub fn passivate(&mut self) {
        self.frame(frames::OUT_PASSIVATE, |_| {})
    }

    /// Ends the entity's life after this command's events. If its id is used
    /// again, it starts from the initial state.
    pub fn delete(&mut self) {
        self.frame(frames::OUT_DELETE, |_| {})
    }

    fn frame(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = frames::begin(self.out, kind);
        fill(self.out);
        frames::end(self.out, start);
    }
}
