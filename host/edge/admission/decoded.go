package admission

import (
	"fmt"
	"strings"
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The sender decides how much memory a message needs: two bytes on the wire can
// become a message struct of 64 bytes and a pointer to it. A shape therefore
// computes an upper bound from the encoded bytes, without allocating, before
// anything is decoded. The binary form is walked field by field, because a bytes
// payload needs the same space in memory as on the wire and must not be charged
// as if it were structure. The JSON form is only scanned for the characters that
// begin a value; member names are not looked up.
//
// The alternative, one factor for all bytes, would have to cover the worst case,
// and three commands of 1 MiB would exhaust the node's budget.

// Costs of decoded values in bytes. Each includes the rounding of the
// allocator's size classes and the spare capacity of slices and maps that grow
// by doubling.
const (
	pointerCost = 16  // an element of a list of messages
	stringCost  = 48  // a string in a list: two string headers, and rounding
	scalarCost  = 16  // a number in a list
	mapCost     = 128 // an entry of a map, without its message and its key
	firstCost   = 256 // a non-empty map, without its entries
	oneofCost   = 24  // the wrapper of a oneof's value
	valueCost   = 224 // a value in JSON text
	// maxDepth limits the nesting of messages, as the decoders do.
	maxDepth = protowire.DefaultRecursionLimit
	// maxElements limits a repeated field whose validation rules have no
	// max_items.
	maxElements = 4096
)

// tooManyError rejects a message before it is decoded, because a repeated field
// has too many elements, or messages nest too deep.
type tooManyError struct {
	Field string
	Most  int
}

// Code implements status.Coded.
func (e *tooManyError) Code() connect.Code { return connect.CodeInvalidArgument }

func (e *tooManyError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("messages nest deeper than %d", e.Most)
	}
	return fmt.Sprintf("%s: must contain no more than %d item(s)", e.Field, e.Most)
}

// shape describes a message type, to compute the memory of a message before it
// is decoded.
type shape struct {
	size   int64 // size of the struct, in bytes
	fields map[protowire.Number]*fieldShape
	low    [lowNumbers]*fieldShape // the same fields by number, for low numbers, which most are
	// free: the number of elements is not limited, only their cost. This applies
	// to payloads.
	free bool
	// most is the size of the largest message type among this type and the
	// types that can be nested in it.
	most int64
}

// lowNumbers: smaller field numbers are found without a map lookup.
const lowNumbers = 16

func (s *shape) field(number protowire.Number) *fieldShape {
	if number < lowNumbers {
		return s.low[number]
	}
	return s.fields[number]
}

type fieldShape struct {
	name     string
	message  *shape // nil for other kinds
	text     bool   // a string or bytes
	canon    bool   // a string that is also written as canonical JSON
	repeated bool
	isMap    bool
	most     int
}

// shapes makes and caches the shapes of message types. It is safe for concurrent
// use.
type shapes struct {
	mu   sync.Mutex
	made map[protoreflect.FullName]*shape
}

// of returns the shape of a message type, which may refer to itself.
func (s *shapes) of(d protoreflect.MessageDescriptor) *shape {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil {
		s.made = map[protoreflect.FullName]*shape{}
	}
	made := s.make(d)
	for changed := true; changed; { // to a fixed point, because types can be recursive
		changed = false
		for _, one := range s.made {
			for _, f := range one.fields {
				if f.message != nil && f.message.most > one.most {
					one.most, changed = f.message.most, true
				}
			}
		}
	}
	return made
}

func (s *shapes) make(d protoreflect.MessageDescriptor) *shape {
	if known := s.made[d.FullName()]; known != nil {
		return known
	}
	out := &shape{size: 64, fields: map[protowire.Number]*fieldShape{}, free: d.ParentFile().Package() == "google.protobuf"}
	s.made[d.FullName()] = out
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		of := &fieldShape{name: f.JSONName(), repeated: f.IsList(), isMap: f.IsMap(), most: mostOf(f)}
		of.text = f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
		of.canon = of.text && out.free
		if f.Message() != nil {
			of.message = s.make(f.Message())
		}
		switch {
		case f.IsMap():
			out.size += firstCost
		case f.ContainingOneof() != nil:
			out.size += oneofCost
		default:
			out.size += 24 // a slice header; other fields are smaller
		}
		if out.fields[f.Number()] = of; f.Number() < lowNumbers {
			out.low[f.Number()] = of
		}
	}
	if d.IsMapEntry() {
		out.size = mapCost
	}
	if d.Oneofs().Len() == 1 && d.Oneofs().Get(0).Fields().Len() == d.Fields().Len() {
		out.size = 64 + oneofCost // only one field can be set
	}
	out.most = out.size
	return out
}

// mostOf returns the maximum number of elements that the validation rules of a
// field allow.
func mostOf(f protoreflect.FieldDescriptor) int {
	o, ok := f.Options().(*descriptorpb.FieldOptions)
	if !ok {
		return maxElements
	}
	rules, _ := proto.GetExtension(o, validate.E_Field).(*validate.FieldRules)
	if most := rules.GetRepeated().GetMaxItems(); most > 0 {
		return int(most)
	}
	return maxElements
}

// binary returns an upper bound of the memory that the encoded message needs
// after decoding. It stops at malformed bytes, because the decoder stops there
// too and reports the error.
func (s *shape) binary(data []byte) (int64, error) { return s.walk(data, maxDepth) }

func (s *shape) walk(data []byte, depth int) (int64, error) {
	if depth == 0 {
		return 0, &tooManyError{Most: maxDepth}
	}
	total := s.size
	var counts elements
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return total, nil
		}
		data = data[n:]
		f := s.field(number)
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return total, nil
			}
			data = data[n:]
			switch {
			case f == nil:
				total += int64(2 * (n + 5)) // kept as unknown bytes, in a slice that doubles
			case f.repeated:
				total += scalarCost
			}
			if err := s.count(&counts, number, f, 1); err != nil {
				return 0, err
			}
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return total, nil
		}
		data = data[n:]
		elements := 1
		switch {
		case f == nil:
			total += int64(2 * (n + 5))
		case f.message != nil:
			below, err := f.message.walk(value, depth-1)
			if err != nil {
				return 0, err
			}
			total += below + pointerCost
		case f.text:
			total += int64(len(value)) + stringCost
			if f.canon {
				total += canonical(value)
			}
		default: // packed numbers
			elements = len(value)
			total += scalarCost * int64(elements)
		}
		if err := s.count(&counts, number, f, elements); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// elements counts the elements of a message's repeated fields.
type elements struct {
	low   [lowNumbers]int
	other map[protowire.Number]int
}

// count adds elements of a repeated field, and fails if there are too many.
func (s *shape) count(counts *elements, number protowire.Number, f *fieldShape, more int) error {
	if f == nil || s.free || !f.repeated {
		return nil
	}
	total := more
	if number < lowNumbers {
		counts.low[number] += more
		total = counts.low[number]
	} else {
		if counts.other == nil {
			counts.other = map[protowire.Number]int{}
		}
		counts.other[number] += more
		total = counts.other[number]
	}
	if total > f.most {
		return &tooManyError{f.name, f.most}
	}
	return nil
}

// canonical returns the length of text as canonical JSON, in which a control
// character needs six bytes.
func canonical(text []byte) int64 {
	n := 2 + int64(len(text))
	for _, c := range text {
		if c < 0x20 {
			n += 5
		}
	}
	return n
}

// text returns an upper bound of the memory that a message as JSON text needs
// after decoding, from the number of its values, members and objects.
func (s *shape) text(data []byte) int64 {
	values, members, objects := int64(1), int64(0), int64(0)
	quoted, opened := false, byte(0) // opened: the bracket of a list or object that has no element yet
	for i := 0; i < len(data); i++ {
		c := data[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		switch c {
		case ' ', '\n', '\t', '\r':
			continue
		case ']', '}':
			opened = 0
			continue
		}
		if opened != 0 {
			values++
			if opened == '{' {
				objects++
			}
			opened = 0
		}
		switch c {
		case '"':
			quoted = true
		case ',':
			values++
		case ':':
			members++
		case '[', '{':
			opened = c
		}
	}
	// Strings are copied out of the tokens, and a second time as canonical JSON.
	return s.most + values*valueCost + members*mapCost + objects*s.most + 3*int64(len(data))
}

// maxUnknown is the size in bytes up to which a message keeps its unknown fields,
// which may be fields of the previous release (package former).
const maxUnknown = 256

// dropUnknown removes the unknown fields of a message and of the messages in it,
// except from messages that have at most maxUnknown bytes of them. It does not
// visit JSON payloads, which may have a message for every two bytes; their unknown
// fields are charged with them.
func dropUnknown(m protoreflect.Message) {
	if len(m.GetUnknown()) > maxUnknown {
		m.SetUnknown(nil)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if d := f.MapValue().Message(); d != nil && !isPayload(d) {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					dropUnknown(v.Message())
					return true
				})
			}
		case f.Message() == nil || isPayload(f.Message()):
		case f.IsList():
			for i := range v.List().Len() {
				dropUnknown(v.List().Get(i).Message())
			}
		default:
			dropUnknown(v.Message())
		}
		return true
	})
}

// isPayload reports whether a message type holds a JSON value.
func isPayload(d protoreflect.MessageDescriptor) bool {
	switch d.FullName() {
	case "google.protobuf.Value", "google.protobuf.Struct", "google.protobuf.ListValue":
		return true
	}
	return false
}

// isJSON reports whether a content type denotes JSON text.
func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.HasSuffix(strings.TrimSpace(strings.ToLower(kind)), "json")
}
