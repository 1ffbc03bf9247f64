//! Counter, written only from abi/ABI.md: without SDK or crate. It behaves like
//! the counter in C, and its state has the same form.

use std::ptr::addr_of_mut;

// Frames

const EVENT: u8 = 1;
const REPLY: u8 = 2;
const REJECT: u8 = 3;

const SNAPSHOT: u8 = 2;
const NAME: u8 = 16;
const PAYLOAD: u8 = 17;
const APPLIED: u8 = 32;

/// The frames of an input: each has a kind and its bytes.
struct Frames<'a>(&'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (head, rest) = self.0.split_at(5);
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (bytes, rest) = rest.split_at(length);
        self.0 = rest;
        Some((head[0], bytes))
    }
}

/// The last frames with the name and the payload of a command or query.
fn request(input: &[u8]) -> (&[u8], &[u8]) {
    let (mut name, mut payload): (&[u8], &[u8]) = (b"", b"");
    for (kind, bytes) in Frames(input) {
        match kind {
            NAME => name = bytes,
            PAYLOAD => payload = bytes,
            _ => {}
        }
    }
    (name, payload)
}

/// Splits off a text that is preceded by its length.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (length, rest) = bytes.split_at(2);
    rest.split_at(u16::from_le_bytes([length[0], length[1]]) as usize)
}

fn span(bytes: &[u8]) -> u64 {
    (bytes.as_ptr() as usize as u64) << 32 | bytes.len() as u64
}

/// The output of a call: each frame is opened, filled and closed.
struct Output(Vec<u8>);

impl Output {
    fn frame(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        self.0.extend_from_slice(&[kind, 0, 0, 0, 0]);
        let start = self.0.len();
        fill(&mut self.0);
        let length = (self.0.len() - start) as u32;
        self.0[start - 4..start].copy_from_slice(&length.to_le_bytes());
    }

    fn reply(&mut self, total: i64) {
        self.frame(REPLY, |out| put_object(out, "total", total));
    }

    fn reject(&mut self, code: &str, message: &str) {
        self.frame(REJECT, |out| {
            put_text(out, code);
            out.extend_from_slice(message.as_bytes());
        });
    }

    /// Writes an event and returns the bytes of its type and payload.
    fn event(&mut self, kind: &str, amount: Option<i64>) -> &[u8] {
        let start = self.0.len() + 5;
        self.frame(EVENT, |out| {
            put_text(out, kind);
            match amount {
                Some(amount) => put_object(out, "amount", amount),
                None => out.extend_from_slice(b"{}"),
            }
        });
        &self.0[start..]
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

// JSON: an object with one number, which may be in quotes

fn put_object(out: &mut Vec<u8>, name: &str, value: i64) {
    out.extend_from_slice(format!("{{\"{name}\":{value}}}").as_bytes());
}

/// Reads digits only; none if there are none or they do not fit.
fn integer(digits: &[u8]) -> Option<i64> {
    let unsigned = digits.strip_prefix(b"-").unwrap_or(digits);
    let padded = unsigned.len() > 1 && unsigned[0] == b'0';
    if padded || unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Reads the value of {"name":value}.
fn member(object: &[u8], name: &str) -> Option<i64> {
    let value = object.strip_prefix(b"{\"")?.strip_prefix(name.as_bytes())?;
    let value = value.strip_prefix(b"\":")?.strip_suffix(b"}")?;
    let quoted = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\""));
    integer(quoted.unwrap_or(value))
}

// State

/// Applies the type and payload of a stored event to a total.
fn evolve(total: &mut i64, event: &[u8]) {
    let (kind, payload) = text(event);
    match kind {
        b"added" => *total = total.wrapping_add(member(payload, "amount").expect("an amount")),
        b"reset" => *total = 0,
        _ => panic!("an event this version does not know"),
    }
}

/// The state of an instance. The host makes one call at a time.
struct Guest {
    input: Vec<u8>,
    output: Output,
    totals: Vec<i64>, // by handle
}

static mut GUEST: Guest = Guest { input: Vec::new(), output: Output(Vec::new()), totals: Vec::new() };

fn guest() -> &'static mut Guest {
    // Calls do not overlap, and there is only one thread.
    unsafe { &mut *addr_of_mut!(GUEST) }
}

/// Returns the guest with an empty output, the input of this call, and the
/// total.
fn call(entity: u64, length: u32) -> (&'static [u8], &'static mut Output, &'static mut i64) {
    let g = guest();
    g.output.0.clear();
    (&g.input[..length as usize], &mut g.output, &mut g.totals[entity as usize])
}

// The contract

const MANIFEST: &str = concat!(
    r#"{"abi":1,"name":"counter-rust","version":"1.0.0","entityTypes":[{"name":"counter","#,
    r#""kind":"event-sourced","encoding":"json","commands":[{"name":"add"},{"name":"reset"}],"#,
    r#""queries":[{"name":"total"}],"events":[{"type":"added"},{"type":"reset"}]}]}"#
);

#[no_mangle]
pub extern "C" fn hostd_abi() -> i32 {
    1
}

#[no_mangle]
pub extern "C" fn hostd_describe() -> u64 {
    span(MANIFEST.as_bytes())
}

#[no_mangle]
pub extern "C" fn hostd_buffer(size: u32) -> *const u8 {
    let input = &mut guest().input;
    let more = (size as usize).saturating_sub(input.len());
    if input.try_reserve_exact(more).is_err() {
        return std::ptr::null();
    }
    input.resize(input.len() + more, 0);
    input.as_ptr()
}

#[no_mangle]
pub extern "C" fn hostd_load(kind: u32, entity: u64, length: u32) -> i32 {
    let g = guest();
    if kind != 0 {
        return 1;
    }
    let mut total = 0;
    for (kind, bytes) in Frames(&g.input[..length as usize]) {
        if kind == SNAPSHOT {
            match member(bytes, "total") {
                Some(loaded) => total = loaded,
                None => return 1,
            }
        }
    }
    let more = (entity as usize + 1).saturating_sub(g.totals.len());
    if g.totals.try_reserve(more).is_err() {
        return 2;
    }
    g.totals.resize(g.totals.len() + more, 0);
    g.totals[entity as usize] = total;
    0
}

#[no_mangle]
pub extern "C" fn hostd_apply(entity: u64, length: u32) -> i32 {
    let (input, _, total) = call(entity, length);
    for (kind, bytes) in Frames(input) {
        if kind == APPLIED {
            evolve(total, &bytes[16..]); // after its sequence and time
        }
    }
    0
}

#[no_mangle]
pub extern "C" fn hostd_handle(entity: u64, length: u32) -> u64 {
    let (input, output, total) = call(entity, length);
    let (name, payload) = request(input);
    match name {
        b"reset" => {
            evolve(total, output.event("reset", None));
            output.reply(*total);
        }
        b"add" => match member(payload, "amount") {
            None => output.reject("invalid_argument", "the payload must be {\"amount\":INTEGER}"),
            Some(amount) if total.checked_add(amount).is_none() => {
                output.reject("overflow", "the total would not fit 64 bits")
            }
            Some(amount) => {
                evolve(total, output.event("added", Some(amount)));
                output.reply(*total);
            }
        },
        _ => output.reject("not_found", "no such command"),
    }
    span(&output.0)
}

#[no_mangle]
pub extern "C" fn hostd_query(entity: u64, length: u32) -> u64 {
    let (input, output, total) = call(entity, length);
    match request(input).0 {
        b"total" => output.reply(*total),
        _ => output.reject("not_found", "no such query"),
    }
    span(&output.0)
}

#[no_mangle]
pub extern "C" fn hostd_snapshot(entity: u64) -> u64 {
    let (_, output, total) = call(entity, 0);
    put_object(&mut output.0, "total", *total);
    span(&output.0)
}

#[no_mangle]
pub extern "C" fn hostd_drop(entity: u64) {
    *call(entity, 0).2 = 0;
}
