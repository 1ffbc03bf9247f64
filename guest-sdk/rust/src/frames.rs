//! Frames of the guest contract: a kind, a length, and bytes.

use crate::context::Source;
use alloc::string::String;
use alloc::vec::Vec;

pub const IN_ENTITY_ID: u8 = 1;
pub const IN_SNAPSHOT: u8 = 2;
pub const IN_SEQUENCE: u8 = 3;
pub const IN_STATE_VERSION: u8 = 4;
pub const IN_NAME: u8 = 16;
pub const IN_PAYLOAD: u8 = 17;
pub const IN_COMMAND_ID: u8 = 18;
pub const IN_NOW: u8 = 19;
pub const IN_SEED: u8 = 20;
pub const IN_SOURCE: u8 = 21;
pub const IN_DUE: u8 = 22;
pub const IN_PRINCIPAL: u8 = 23;
pub const IN_SETTINGS: u8 = 24;
pub const IN_EVENT: u8 = 32;

pub const OUT_EVENT: u8 = 1;
pub const OUT_REPLY: u8 = 2;
pub const OUT_REJECT: u8 = 3;
pub const OUT_SEND: u8 = 4;
pub const OUT_SET_TIMER: u8 = 5;
pub const OUT_CANCEL_TIMER: u8 = 6;
pub const OUT_PASSIVATE: u8 = 7;
pub const OUT_TAG: u8 = 8;
pub const OUT_STATE: u8 = 9;
pub const OUT_DELETE: u8 = 10;
pub const OUT_SEND_WITH_ANSWER: u8 = 11;
pub const OUT_SET_SCHEDULE: u8 = 12;

/// The frames of an input. It panics on malformed frames, which a correct host
/// never sends.
pub struct Frames<'a>(pub &'a [u8]);

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

/// Splits off a text that is preceded by its length.
pub fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (length, rest) = bytes.split_at(2);
    rest.split_at(u16::from_le_bytes([length[0], length[1]]) as usize)
}

pub fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(all)
}

/// A text that the host has written.
pub fn utf8(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("hostd: a string is not UTF-8")
}

/// The input of a call.
#[derive(Default)]
pub struct Request<'a> {
    pub entity_id: &'a [u8],
    pub snapshot: Option<&'a [u8]>,
    pub sequence: u64,
    pub state_version: u64,
    pub name: &'a [u8],
    pub payload: &'a [u8],
    pub command_id: &'a [u8],
    pub now: i64,
    pub seed: u64,
    pub source: &'a [u8],
    pub due: i64,
    pub principal: Option<&'a [u8]>,
    pub settings: &'a [u8],
}

impl<'a> Request<'a> {
    pub fn read(input: &'a [u8]) -> Self {
        let mut r = Request::default();
        for (kind, bytes) in Frames(input) {
            match kind {
                IN_ENTITY_ID => r.entity_id = bytes,
                IN_SNAPSHOT => r.snapshot = Some(bytes),
                IN_SEQUENCE => r.sequence = number(bytes),
                IN_STATE_VERSION => r.state_version = number(bytes),
                IN_NAME => r.name = bytes,
                IN_PAYLOAD => r.payload = bytes,
                IN_COMMAND_ID => r.command_id = bytes,
                IN_NOW => r.now = number(bytes) as i64,
                IN_SEED => r.seed = number(bytes),
                IN_SOURCE => r.source = bytes,
                IN_DUE => r.due = number(bytes) as i64,
                IN_PRINCIPAL => r.principal = Some(bytes),
                IN_SETTINGS => r.settings = bytes,
                _ => {} // a kind of a later contract version
            }
        }
        r
    }

    pub fn source(&self) -> Source {
        match self.source.first() {
            Some(2) => Source::Timer,
            Some(3) => {
                let (entity_type, rest) = text(&self.source[1..]);
                let (id, _) = text(rest);
                Source::Entity { entity_type: String::from(utf8(entity_type)), id: String::from(utf8(id)) }
            }
            _ => Source::Client,
        }
    }
}

/// Begins a frame; `end` writes the length of everything written since.
pub fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    out.extend_from_slice(&[kind, 0, 0, 0, 0]);
    out.len()
}

pub fn end(out: &mut Vec<u8>, start: usize) {
    let length = (out.len() - start) as u32;
    out[start - 4..start].copy_from_slice(&length.to_le_bytes());
}

/// Writes a text with its length, which has 16 bits. It truncates a longer text
/// to what fits. That is still over the limit of any name, so the host rejects
/// the command with `out_of_range`. A panic here instead would be a guest fault
/// that a caller can cause.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(u16::MAX as usize)];
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::put_text;
    use alloc::vec::Vec;

    #[test]
    fn long_names_are_over_a_limit() {
        for (length, kept) in [(0, 0), (255, 255), (65_535, 65_535), (65_536, 65_535), (70_000, 65_535)] {
            let mut out = Vec::new();
            put_text(&mut out, &"n".repeat(length));
            assert_eq!(out.len(), 2 + kept);
            assert_eq!(out[..2], (kept as u16).to_le_bytes());
        }
    }
}
