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

// How much memory a message takes is decided by its sender: two bytes on the
// wire make a message of 64 bytes and a pointer to it. A shape computes an
// upper bound from the encoded bytes, without allocating, before anything is
// decoded. The binary form is walked field by field, because a payload of bytes
// takes what it takes on the wire and must not be charged as if it were
// structure. The JSON form is scanned for what begins a value: names are not
// looked up.
//
// The alternative, one factor for all bytes, would have to be the worst case,
// and three commands of 1 MiB would fill the node's budget.

// Costs of decoded memory in bytes, each rounded up by the allocator's classes
// and by slices and maps that grow by doubling.
const (
	pointerCost = 16  // a slot in a list of messages
	stringCost  = 48  // a string in a list: its header twice, and rounding
	scalarCost  = 16  // a number in a list
	mapCost     = 128 // an entry of a map beside its message and its key
	firstCost   = 256 // a map that is not empty, beside its entries
	oneofCost   = 24  // the wrapper of a oneof's value
	valueCost   = 224 // a value in JSON text
	// maxDepth bounds how deep messages nest, as the decoders do.
	maxDepth = protowire.DefaultRecursionLimit
	// maxElements bounds a repeated field whose rules have no max_items.
	maxElements = 4096
)

// TooManyError refuses a message before it is decoded: a repeated field has
// more elements than it may have, or messages nest too deep. The caller's input
// is at fault.
type TooManyError struct {
	Field string
	Most  int
}

// Code is that of the caller's input.
func (e *TooManyError) Code() connect.Code { return connect.CodeInvalidArgument }

func (e *TooManyError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("messages nest deeper than %d", e.Most)
	}
	return fmt.Sprintf("%s: must contain no more than %d item(s)", e.Field, e.Most)
}

// shape is what is known of a message type before a message is decoded.
type shape struct {
	size   int64 // of the struct
	fields map[protowire.Number]*fieldShape
	low    [lowNumbers]*fieldShape // those of low numbers again, which most are
	// free: elements are bounded by their cost alone. Payloads are.
	free bool
	// most is the size of the largest message that there may be in one, itself
	// too.
	most int64
}

// lowNumbers is how many field numbers are found without a map.
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
	canon    bool   // a string that is written as canonical JSON
	repeated bool
	isMap    bool
	most     int
}

// shapes makes those of message types. It is safe for concurrent use.
type shapes struct {
	mu   sync.Mutex
	made map[protoreflect.FullName]*shape
}

// of returns the shape of a type. Types refer to themselves.
func (s *shapes) of(d protoreflect.MessageDescriptor) *shape {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil {
		s.made = map[protoreflect.FullName]*shape{}
	}
	made := s.make(d)
	for changed := true; changed; { // until each knows all below
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
			out.size += 24 // a slice; others are smaller
		}
		if out.fields[f.Number()] = of; f.Number() < lowNumbers {
			out.low[f.Number()] = of
		}
	}
	if d.IsMapEntry() {
		out.size = mapCost
	}
	if d.Oneofs().Len() == 1 && d.Oneofs().Get(0).Fields().Len() == d.Fields().Len() {
		out.size = 64 + oneofCost // one of them at a time
	}
	out.most = out.size
	return out
}

// mostOf is how many elements the rules of a field allow.
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

// binary bounds what the encoded message takes once it is decoded. Bytes that
// are no message are left to the decoder, which stops there as this does.
func (s *shape) binary(data []byte) (int64, error) { return s.walk(data, maxDepth) }

func (s *shape) walk(data []byte, depth int) (int64, error) {
	if depth == 0 {
		return 0, &TooManyError{Most: maxDepth}
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
				total += int64(2 * (n + 5)) // is kept as it is, in a slice that doubles
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
		default: // numbers, packed
			elements = len(value)
			total += scalarCost * int64(elements)
		}
		if err := s.count(&counts, number, f, elements); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// elements are how many elements the repeated fields of a message have.
type elements struct {
	low   [lowNumbers]int
	other map[protowire.Number]int
}

// count counts the elements of a repeated field.
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
		return &TooManyError{f.name, f.most}
	}
	return nil
}

// canonical is what text takes as canonical JSON: a control character is
// written with six.
func canonical(text []byte) int64 {
	n := 2 + int64(len(text))
	for _, c := range text {
		if c < 0x20 {
			n += 5
		}
	}
	return n
}

// text bounds what a message as JSON text takes once it is decoded, by the
// number of its values, its members and its objects.
func (s *shape) text(data []byte) int64 {
	values, members, objects := int64(1), int64(0), int64(0)
	quoted, opened := false, byte(0) // opened: what was opened has nothing in it yet
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
	// Text is copied out of the tokens, and once more as canonical JSON.
	return s.most + values*valueCost + members*mapCost + objects*s.most + 3*int64(len(data))
}

// isJSON reports whether a content type is of JSON text.
func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.HasSuffix(strings.TrimSpace(strings.ToLower(kind)), "json")
}
