//! The manifest, which describes a module.

use crate::entity::Entity;
use crate::guest::Module;
use crate::json::{write_string, Json};
use crate::upcast::versioned;
use alloc::format;
use alloc::vec::Vec;

/// Writes `,"name":`, or `"name":` at the beginning of an object.
fn member(out: &mut Vec<u8>, name: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    write_string(name, out);
    out.push(b':');
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    member(out, name);
    write_string(value, out);
}

fn number(out: &mut Vec<u8>, name: &str, value: u32) {
    if value != 0 {
        member(out, name);
        value.write(out);
    }
}

fn flag(out: &mut Vec<u8>, name: &str, value: bool) {
    if value {
        member(out, name);
        out.extend_from_slice(b"true");
    }
}

fn texts(out: &mut Vec<u8>, name: &str, values: Option<&[&str]>) {
    if let Some(values) = values {
        member(out, name);
        list(out, values, |out, value| write_string(value, out));
    }
}

fn list<T>(out: &mut Vec<u8>, values: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, value);
    }
    out.push(b']');
}

/// Writes a schema, except for no payload and for a type without schemas.
fn schema<S>(out: &mut Vec<u8>, e: &Entity<S>, name: &str, schema: &[u8]) {
    if !e.options.no_schemas && !schema.is_empty() {
        member(out, name);
        out.extend_from_slice(schema);
    }
}

pub(crate) fn module(m: &Module, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"abi\":1");
    text(out, "name", m.name);
    text(out, "version", m.version);
    member(out, "entityTypes");
    list(out, &m.types, |out, t| t.describe(out));
    out.push(b'}');
}

pub(crate) fn entity<S: Json>(e: &Entity<S>, out: &mut Vec<u8>) {
    let o = &e.options;
    out.push(b'{');
    text(out, "name", e.name);
    text(out, "kind", if o.durable { "durable-state" } else { "event-sourced" });
    text(out, "encoding", "json");
    member(out, "commands");
    list(out, &e.commands, |out, c| {
        out.push(b'{');
        text(out, "name", c.name);
        flag(out, "internal", c.internal);
        texts(out, "rejections", c.rejections);
        schema(out, e, "schema", &c.schema);
        schema(out, e, "reply", &c.reply);
        out.push(b'}');
    });
    member(out, "queries");
    list(out, &e.queries, |out, q| {
        out.push(b'{');
        text(out, "name", q.name);
        schema(out, e, "schema", &q.schema);
        schema(out, e, "reply", &q.reply);
        out.push(b'}');
    });
    member(out, "events");
    events(e, out);
    number(out, "snapshotEvery", o.snapshot_every);
    if o.passivate_after > 0 {
        text(out, "passivateAfter", &format!("{}ns", o.passivate_after));
    }
    flag(out, "alwaysOn", o.always_on);
    number(out, "retainSnapshots", o.retain_snapshots);
    match o.retain_events {
        None => {}
        Some(0) => text(out, "retainEvents", "snapshots"),
        Some(last) => number(out, "retainEvents", last),
    }
    flag(out, "recordPrincipal", o.record_principal);
    flag(out, "singleton", o.singleton);
    if let Some((group, until)) = o.shard_key {
        member(out, "shardKey");
        out.push(b'{');
        if !group.is_empty() {
            text(out, "group", group);
        }
        if !until.is_empty() {
            text(out, "until", until);
        }
        out.push(b'}');
    }
    texts(out, "sends", o.sends);
    texts(out, "acceptsFrom", o.accepts_from);
    schema(out, e, "state", &crate::json::schema_of::<S>(crate::json::Form::Written));
    number(out, "stateVersion", o.state_version);
    if !e.migrations.is_empty() {
        member(out, "readsStates");
        list(out, &e.migrations, |out, m| {
            out.push(b'{');
            number(out, "version", m.version);
            schema(out, e, "schema", &m.schema);
            out.push(b'}');
        });
    }
    if o.unchecked {
        member(out, "validate");
        out.extend_from_slice(b"false");
    }
    out.push(b'}');
}

fn events<S>(e: &Entity<S>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, event) in e.events.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.push(b'{');
        text(out, "type", &event.name);
        schema(out, e, "schema", &event.schema);
        out.push(b'}');
    }
    for u in &e.upcasts {
        let last = e.upcasts.iter().filter(|other| other.name == u.name).map(|other| other.version).max();
        out.extend_from_slice(b",{");
        text(out, "type", &u.stored);
        text(out, "upcastTo", &versioned(u.name, last.unwrap_or(u.version) + 1));
        schema(out, e, "schema", &u.schema);
        out.push(b'}');
    }
    out.push(b']');
}
