//! JSON encoding and decoding, by rules that all SDKs share: the text is
//! compact, with members in the order of their declaration. In the input,
//! missing and `null` members get their default, unknown members are skipped,
//! and integers may be numbers or strings of digits.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Declares a struct that is encoded and decoded as a JSON object. If the name
/// of a member differs from its field's, `as` sets it:
///
/// ```ignore
/// json! {
///     /// What is in the cart of one SKU.
///     #[derive(Clone)]
///     pub struct Item { pub price: i64, pub in_cart as "inCart": i64 }
/// }
/// ```
///
/// The struct derives `Default`; every field's type is [`Json`].
#[macro_export]
macro_rules! json {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident $(as $member:literal)? : $typ:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Default)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $typ),*
        }

        impl $crate::Json for $name {
            #[allow(unused_mut)]
            fn write(&self, out: &mut $crate::json::Bytes) {
                let mut object = $crate::json::ObjectWriter::begin(out);
                $(object.member($crate::json_member!($field $($member)?), &self.$field);)*
                object.end();
            }

            #[allow(unused_mut, unused_variables)]
            fn read(reader: &mut $crate::json::Reader) -> ::core::result::Result<Self, $crate::json::Invalid> {
                let mut made = Self::default();
                reader.object(|reader, name| {
                    $(if name == $crate::json_member!($field $($member)?) {
                        made.$field = reader.value()?;
                        return ::core::result::Result::Ok(());
                    })*
                    reader.skip()
                })?;
                ::core::result::Result::Ok(made)
            }

            #[allow(unused_mut)]
            fn schema(form: $crate::json::Form, null: bool, depth: u32) -> $crate::json::Bytes {
                let mut object = $crate::json::ObjectSchema::begin(form, null);
                $(object.member::<$typ>($crate::json_member!($field $($member)?), depth);)*
                object.end()
            }
        }
    };
}

/// The name of a member: the given one, or else the field's.
#[doc(hidden)]
#[macro_export]
macro_rules! json_member {
    ($field:ident) => {
        ::core::stringify!($field)
    };
    ($field:ident $member:literal) => {
        $member
    };
}

/// A byte buffer, for [`json!`](crate::json!).
pub type Bytes = Vec<u8>;

/// A type that is encoded and decoded as JSON. Decoding an encoded value must
/// return an equal value. `HashMap` has no implementation, because its order is
/// random.
pub trait Json: Default {
    /// Whether the type stands for no payload.
    const NONE: bool = false;

    fn write(&self, out: &mut Bytes);

    fn read(reader: &mut Reader) -> Result<Self, Invalid>;

    /// The JSON Schema of its values; `null` allows null too. `depth` is the
    /// number of enclosing types.
    fn schema(form: Form, null: bool, depth: u32) -> Bytes;
}

/// Which values of a type a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Values that others encode.
    Given,
    /// Given, without unknown members.
    Closed,
    /// Values that this module encodes.
    Written,
}

/// Why and where a text is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    at: usize,
    reason: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.at)
    }
}

/// Decodes a whole payload or snapshot. An empty payload is the default value.
pub fn decode<T: Json>(text: &[u8]) -> Result<T, Invalid> {
    if T::NONE || text.is_empty() {
        return Ok(T::default());
    }
    let mut reader = Reader { text, at: 0, depth: 0 };
    let value = reader.value()?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.invalid("there is more than one value")),
    }
}

/// The schema of a type; empty for no payload.
pub(crate) fn schema_of<T: Json>(form: Form) -> Bytes {
    if T::NONE {
        return Vec::new();
    }
    T::schema(form, form != Form::Written, 0)
}

/// The maximum nesting of values.
const MAX_DEPTH: u32 = 200;

/// The maximum nesting of types in a schema; deeper ones allow anything.
const MAX_SCHEMA_DEPTH: u32 = 6;

/// Reads a text, value by value.
pub struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    pub fn invalid(&self, reason: &'static str) -> Invalid {
        Invalid { at: self.at, reason }
    }

    /// The next byte after white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += there as usize;
        there
    }

    fn literal(&mut self, word: &str) -> bool {
        self.peek();
        let there = self.text[self.at..].starts_with(word.as_bytes());
        self.at += if there { word.len() } else { 0 };
        there
    }

    /// Reads a value; `null` is the default value.
    pub fn value<T: Json>(&mut self) -> Result<T, Invalid> {
        if self.literal("null") {
            return Ok(T::default());
        }
        T::read(self)
    }

    fn enter(&mut self, bracket: u8, wanted: &'static str) -> Result<(), Invalid> {
        if !self.take(bracket) {
            return Err(self.invalid(wanted));
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.invalid("values are nested too deep"));
        }
        Ok(())
    }

    /// Reports whether there is another element, and skips the separator.
    fn more(&mut self, bracket: u8, first: bool) -> Result<bool, Invalid> {
        if self.take(bracket) {
            self.depth -= 1;
            return Ok(false);
        }
        if first || self.take(b',') {
            return Ok(true);
        }
        Err(self.invalid("expected a comma or an end"))
    }

    /// Reads an object; `member` reads the value of a name.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Result<(), Invalid>) -> Result<(), Invalid> {
        self.enter(b'{', "expected an object")?;
        let mut first = true;
        while self.more(b'}', first)? {
            let name = self.string()?;
            if !self.take(b':') {
                return Err(self.invalid("expected a colon"));
            }
            member(self, &name)?;
            first = false;
        }
        Ok(())
    }

    /// Reads a list; `element` reads a value.
    pub fn list(&mut self, mut element: impl FnMut(&mut Self) -> Result<(), Invalid>) -> Result<(), Invalid> {
        self.enter(b'[', "expected a list")?;
        let mut first = true;
        while self.more(b']', first)? {
            element(self)?;
            first = false;
        }
        Ok(())
    }

    /// Reads a string.
    pub fn string(&mut self) -> Result<Cow<'a, str>, Invalid> {
        if !self.take(b'"') {
            return Err(self.invalid("expected a string"));
        }
        let start = self.at;
        loop {
            match self.text.get(self.at) {
                None => return Err(self.invalid("a string has no end")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(String::from_utf8_lossy(&self.text[start..self.at - 1]));
                }
                Some(b'\\') => return self.escaped(start),
                Some(0..=0x1f) => return Err(self.invalid("a control character in a string")),
                Some(_) => self.at += 1,
            }
        }
    }

    /// Reads the rest of a string, starting at its first escape.
    fn escaped(&mut self, start: usize) -> Result<Cow<'a, str>, Invalid> {
        let mut out = Vec::from(&self.text[start..self.at]);
        loop {
            let byte = match self.text.get(self.at) {
                None => return Err(self.invalid("a string has no end")),
                Some(0..=0x1f) => return Err(self.invalid("a control character in a string")),
                Some(byte) => *byte,
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(Cow::Owned(String::from_utf8_lossy(&out).into_owned())),
                b'\\' => {
                    let c = self.escape()?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Invalid> {
        let byte = self.text.get(self.at).copied();
        self.at += 1;
        Ok(match byte {
            Some(c @ (b'"' | b'\\' | b'/')) => c as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex()?;
                let mut code = first;
                if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
                    let back = self.at;
                    self.at += 2;
                    let second = self.hex()?;
                    if (0xdc00..0xe000).contains(&second) {
                        code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    } else {
                        self.at = back;
                    }
                }
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return Err(self.invalid("invalid escape")),
        })
    }

    fn hex(&mut self) -> Result<u32, Invalid> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.text.get(self.at).and_then(|c| (*c as char).to_digit(16));
            code = code << 4 | digit.ok_or_else(|| self.invalid("invalid escape"))?;
            self.at += 1;
        }
        Ok(code)
    }

    /// Reads a number, and reports whether it is written as an integer.
    fn number(&mut self) -> Result<(&'a str, bool), Invalid> {
        self.peek();
        self.bare_number()
    }

    fn bare_number(&mut self) -> Result<(&'a str, bool), Invalid> {
        let start = self.at;
        let mut whole = true;
        self.at += (self.text.get(self.at) == Some(&b'-')) as usize;
        let zero = self.text.get(self.at) == Some(&b'0');
        if self.digits()? > 1 && zero {
            return Err(self.invalid("a number has a leading 0"));
        }
        if self.text.get(self.at) == Some(&b'.') {
            whole = false;
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            whole = false;
            self.at += 1;
            self.at += matches!(self.text.get(self.at), Some(b'+' | b'-')) as usize;
            self.digits()?;
        }
        Ok((core::str::from_utf8(&self.text[start..self.at]).unwrap_or(""), whole))
    }

    fn digits(&mut self) -> Result<usize, Invalid> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.invalid("expected a digit"));
        }
        Ok(self.at - start)
    }

    /// Reads an integer, which may be in quotes, as its digits. Without quotes
    /// it may have a fraction or an exponent, such as 5.0.
    fn integer(&mut self) -> Result<Cow<'a, str>, Invalid> {
        let quoted = self.take(b'"');
        let (digits, whole) = self.bare_number()?;
        if quoted && self.text.get(self.at) != Some(&b'"') {
            return Err(self.invalid("expected the end of an integer"));
        }
        self.at += quoted as usize;
        match whole {
            true => Ok(Cow::Borrowed(digits)),
            false if quoted => Err(self.invalid("expected an integer")),
            false => plain_integer(digits).map(Cow::Owned).ok_or_else(|| self.invalid("expected an integer")),
        }
    }

    /// Skips a value of any kind.
    pub fn skip(&mut self) -> Result<(), Invalid> {
        match self.peek() {
            Some(b'{') => self.object(|r, _| r.skip()),
            Some(b'[') => self.list(|r| r.skip()),
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number().map(|_| ()),
            _ if self.literal("null") || self.literal("true") || self.literal("false") => Ok(()),
            _ => Err(self.invalid("expected a value")),
        }
    }
}

/// The digits of a number with a fraction or an exponent, if it is an integer
/// of at most 64 bits.
fn plain_integer(number: &str) -> Option<String> {
    let (sign, number) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number),
    };
    let (mantissa, exponent) = match number.find(['e', 'E']) {
        Some(at) => (&number[..at], &number[at + 1..]),
        None => (number, "0"),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{}{}", whole, fraction);
    let all = all.trim_start_matches('0');
    let digits = all.trim_end_matches('0');
    if digits.is_empty() {
        return Some(String::from("0"));
    }
    let exponent: i64 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
    // The number of zeros to append to the digits.
    let zeros = exponent.checked_sub(fraction.len() as i64)?.checked_add((all.len() - digits.len()) as i64)?;
    if !(0..=20).contains(&zeros) || digits.len() > 20 {
        return None;
    }
    Some(format!("{}{}{}", sign, digits, "0".repeat(zeros as usize)))
}

/// Writes an object member by member.
pub struct ObjectWriter<'a> {
    out: &'a mut Bytes,
    first: bool,
}

impl<'a> ObjectWriter<'a> {
    pub fn begin(out: &'a mut Bytes) -> Self {
        out.push(b'{');
        ObjectWriter { out, first: true }
    }

    pub fn member<T: Json>(&mut self, name: &str, value: &T) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        write_string(name, self.out);
        self.out.push(b':');
        value.write(self.out);
    }

    pub fn end(self) {
        self.out.push(b'}');
    }
}

/// Writes a string as JSON.
pub fn write_string(text: &str, out: &mut Bytes) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..=0x1f => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]]),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Builds the schema of a struct.
pub struct ObjectSchema {
    form: Form,
    null: bool,
    members: Bytes,
    required: Bytes,
}

impl ObjectSchema {
    pub fn begin(form: Form, null: bool) -> Self {
        ObjectSchema { form, null, members: Vec::new(), required: Vec::new() }
    }

    pub fn member<T: Json>(&mut self, name: &str, depth: u32) {
        if !self.members.is_empty() {
            self.members.push(b',');
            self.required.push(b',');
        }
        write_string(name, &mut self.members);
        self.members.push(b':');
        self.members.extend(schema_in::<T>(self.form, false, depth));
        write_string(name, &mut self.required);
    }

    pub fn end(self) -> Bytes {
        let mut rest = Vec::from(&b",\"properties\":{"[..]);
        rest.extend(self.members);
        rest.push(b'}');
        if self.form == Form::Written && !self.required.is_empty() {
            rest.extend_from_slice(b",\"required\":[");
            rest.extend(self.required);
            rest.push(b']');
        }
        if self.form == Form::Closed {
            rest.extend_from_slice(b",\"additionalProperties\":false");
        }
        plain("\"object\"", self.null, &rest)
    }
}

/// The schema of a type inside another type.
fn schema_in<T: Json>(form: Form, null: bool, depth: u32) -> Bytes {
    if depth >= MAX_SCHEMA_DEPTH {
        return Vec::from(&b"{}"[..]);
    }
    T::schema(form, null, depth + 1)
}

/// A schema with the given types, followed by further keywords.
pub fn plain(types: &str, null: bool, rest: &[u8]) -> Bytes {
    let text = match (null, types.contains(',')) {
        (true, _) => format!("{{\"type\":[{},\"null\"]", types),
        (false, true) => format!("{{\"type\":[{}]", types),
        (false, false) => format!("{{\"type\":{}", types),
    };
    let mut out = text.into_bytes();
    out.extend_from_slice(rest);
    out.push(b'}');
    out
}

/// No payload: it ignores its input and writes nothing.
impl Json for () {
    const NONE: bool = true;

    fn write(&self, _: &mut Bytes) {}

    fn read(reader: &mut Reader) -> Result<Self, Invalid> {
        reader.skip()
    }

    fn schema(_: Form, _: bool, _: u32) -> Bytes {
        Vec::from(&b"{}"[..])
    }
}

impl Json for bool {
    fn write(&self, out: &mut Bytes) {
        out.extend_from_slice(if *self { b"true" } else { b"false" });
    }

    fn read(reader: &mut Reader) -> Result<Self, Invalid> {
        match (reader.literal("true"), reader.literal("false")) {
            (false, false) => Err(reader.invalid("expected true or false")),
            (yes, _) => Ok(yes),
        }
    }

    fn schema(_: Form, null: bool, _: u32) -> Bytes {
        plain("\"boolean\"", null, b"")
    }
}

macro_rules! integer {
    ($($typ:ty: $types:literal $rest:literal),*) => {$(
        impl Json for $typ {
            fn write(&self, out: &mut Bytes) {
                out.extend_from_slice(format!("{}", self).as_bytes());
            }

            fn read(reader: &mut Reader) -> Result<Self, Invalid> {
                let digits = reader.integer()?;
                match digits.strip_prefix('-').filter(|rest| *rest == "0") {
                    Some(_) => Ok(0), // unsigned types accept it too
                    None => digits.parse::<$typ>().map_err(|_| reader.invalid("the integer is out of range")),
                }
            }

            fn schema(_: Form, null: bool, _: u32) -> Bytes {
                plain($types, null, $rest)
            }
        }
    )*};
}

integer! {
    i8: "\"integer\"" b",\"minimum\":-128,\"maximum\":127",
    i16: "\"integer\"" b",\"minimum\":-32768,\"maximum\":32767",
    i32: "\"integer\"" b",\"minimum\":-2147483648,\"maximum\":2147483647",
    i64: "\"integer\",\"string\"" b",\"format\":\"int64\"",
    u8: "\"integer\"" b",\"minimum\":0,\"maximum\":255",
    u16: "\"integer\"" b",\"minimum\":0,\"maximum\":65535",
    u32: "\"integer\"" b",\"minimum\":0,\"maximum\":4294967295",
    u64: "\"integer\",\"string\"" b",\"format\":\"uint64\""
}

/// A number. It panics for infinities and NaN, which JSON cannot represent.
impl Json for f64 {
    fn write(&self, out: &mut Bytes) {
        assert!(self.is_finite(), "hostd: JSON has no number for {}", self);
        out.extend_from_slice(format!("{}", self).as_bytes());
    }

    fn read(reader: &mut Reader) -> Result<Self, Invalid> {
        let (text, _) = reader.number()?;
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => Err(reader.invalid("the number is out of range")),
        }
    }

    fn schema(_: Form, null: bool, _: u32) -> Bytes {
        plain("\"number\"", null, b"")
    }
}

impl Json for String {
    fn write(&self, out: &mut Bytes) {
        write_string(self, out)
    }

    fn read(reader: &mut Reader) -> Result<Self, Invalid> {
        Ok(reader.string()?.into_owned())
    }

    fn schema(_: Form, null: bool, _: u32) -> Bytes {
        plain("\"string\"", null, b"")
    }
}

impl<T: Json> Json for Option<T> {
    fn write(&self, out: &mut Bytes) {
        match self {
            None => out.extend_from_slice(b"null"),
            Some(value) => value.write(out),
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, Invalid> {
        Ok(Some(T::read(reader)?)) // null was handled before
    }

    fn schema(form: Form, _: bool, depth: u32) -> Bytes {
        schema_in::<T>(form, true, depth)
    }
}

impl<T: Json> Json for Vec<T> {
    fn write(&self, out: &mut Bytes) {
        out.push(b'[');
        for (i, value) in self.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            value.write(out);
        }
        out.push(b']');
    }

    fn read(reader: &mut Reader) -> Result<Self, Invalid> {
        let mut values = Vec::new();
        reader.list(|r| {
            values.push(r.value()?);
            Ok(())
        })?;
        Ok(values)
    }

    fn schema(form: Form, null: bool, depth: u32) -> Bytes {
        let mut rest = Vec::from(&b",\"items\":"[..]);
        rest.extend(schema_in::<T>(form, false, depth));
        plain("\"array\"", null, &rest)
    }
}

/// An object with arbitrary member names, written in their order.
impl<T: Json> Json for BTreeMap<String, T> {
    fn write(&self, out: &mut Bytes) {
        let mut object = ObjectWriter::begin(out);
        for (name, value) in self {
            object.member(name, value);
        }
        object.end();
    }

    fn read(reader: &mut Reader) -> Result<Self, Invalid> {
        let mut values = BTreeMap::new();
        reader.object(|r, name| {
            let value = r.value()?;
            values.insert(String::from(name), value);
            Ok(())
        })?;
        Ok(values)
    }

    fn schema(form: Form, null: bool, depth: u32) -> Bytes {
        let mut rest = Vec::from(&b",\"additionalProperties\":"[..]);
        rest.extend(schema_in::<T>(form, false, depth));
        plain("\"object\"", null, &rest)
    }
}

/// JSON text that is kept unparsed, for example a member that is only passed
/// on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(pub Bytes);

impl Default for Raw {
    fn default() -> Self {
        Raw(Vec::from(&b"null"[..]))
    }
}

impl Json for Raw {
    fn write(&self, out: &mut Bytes) {
        out.extend_from_slice(&self.0);
    }

    fn read(reader: &mut Reader) -> Result<Self, Invalid> {
        reader.peek();
        let start = reader.at;
        reader.skip()?;
        Ok(Raw(Vec::from(&reader.text[start..reader.at])))
    }

    fn schema(_: Form, _: bool, _: u32) -> Bytes {
        Vec::from(&b"{}"[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corner cases of numbers that the API of a node is tested with.
    #[test]
    fn integers_keep_their_digits() {
        let cases = include_str!("../../../abi/jsontext/testdata/cases.txt");
        for line in cases.lines() {
            let (given, wanted) = match line.split_once(" => ") {
                Some(case) => case,
                None => continue,
            };
            if !given.starts_with(|c: char| c == '-' || c.is_ascii_digit()) || given == "1 2" || given == "1e-400" {
                continue;
            }
            assert_eq!(decode::<i64>(given.as_bytes()).ok(), wanted.parse().ok(), "i64 of {}", given);
            if wanted != "0" {
                assert_eq!(decode::<u64>(given.as_bytes()).ok(), wanted.parse().ok(), "u64 of {}", given);
            }
            assert_eq!(decode::<f64>(given.as_bytes()).is_ok(), wanted != "refused", "f64 of {}", given);
        }
        assert_eq!(decode::<i64>(b"\"9007199254740993\""), Ok(9007199254740993));
        assert!(decode::<i64>(b"\"5.0\"").is_err());
    }
}
