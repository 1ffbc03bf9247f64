package schema

import (
	"encoding/json"
	"errors"
)

// Limits of a schema, so that compiling the schema and checking texts against
// it stay cheap.
const (
	MaxDepth        = 32    // nesting of schemas, as they are written
	MaxSchemas      = 1024  // subschemas of one schema, including those of the $defs it uses
	MaxMembers      = 256   // members that one schema names
	MaxEnum         = 1024  // values of one enum
	MaxPatterns     = 64    // patterns of one schema
	MaxPatternBytes = 256   // length of one pattern
	MaxPatternCode  = 2_000 // instructions of a compiled pattern
)

// Limits of a check.
const (
	// MaxValueDepth limits the nesting of values and the depth of applied
	// schemas.
	MaxValueDepth = 500
	// MaxViolations is how many violations of a text are reported.
	MaxViolations = 16

	// A check may take leastSteps, plus stepsPerByte for each byte of the text.
	// The number of steps depends only on the schema and the text, so every node
	// gives the same answer. One step lasts at most about 20 ns: it pays for a
	// value or a member, for 16 skipped bytes, or for two instructions of a
	// pattern. Slower work costs more steps; BenchmarkStepsAtTheirBound measures
	// it.
	leastSteps   = 100_000
	stepsPerByte = 4

	// PauseSteps is the approximate number of steps between two calls of
	// Options.Pause, about a quarter of a millisecond.
	PauseSteps = 16_384
)

// ErrInvalid is wrapped by every error of Compile and Inspect.
var ErrInvalid = errors.New("invalid schema")

// Error is the first fault of a schema: its place, as a path such as
// properties.amount.minimum, and a description. Shared means that the path
// starts at the module, in its $defs. It unwraps to ErrInvalid.
type Error struct {
	Path, Reason string
	Shared       bool
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Path + ": " + e.Reason
}

func (e *Error) Unwrap() error { return ErrInvalid }

// Violation is a fault of a text: its place, as a path such as items[3].sku
// that is empty for the whole text, and a description. It contains names of
// members, but no values.
type Violation struct{ Field, Text string }

func (v Violation) String() string {
	if v.Field == "" {
		return v.Text
	}
	return v.Field + ": " + v.Text
}

// Schema is a compiled schema. It is immutable.
type Schema struct {
	root   *node
	weight int
}

// Weight returns the memory that a schema needs, in units of a few hundred
// bytes: it counts subschemas, members, values of enums, and every eight
// instructions of a pattern.
func (s *Schema) Weight() int { return s.weight }

// Compile compiles a schema for checking; defs are the $defs of its module. The
// error is an *Error.
func Compile(text []byte, defs map[string]json.RawMessage) (*Schema, error) {
	return compile(text, defs, false)
}

// Inspect is like Compile, for a schema that only describes values: it may have
// keywords that nodes do not check, and a check with it ignores them.
func Inspect(text []byte, defs map[string]json.RawMessage) (*Schema, error) {
	return compile(text, defs, true)
}

// InspectShared is like Inspect, for one of the $defs of a module.
func InspectShared(name string, defs map[string]json.RawMessage) (*Schema, error) {
	doc, err := document([]byte("true"), defs)
	if err != nil {
		return nil, err
	}
	c := compiler{doc: doc, nodes: map[string]*node{}, describes: true}
	return c.compile(sharedDefs.member(name), doc.defs[name])
}

func compile(text []byte, defs map[string]json.RawMessage, describes bool) (*Schema, error) {
	doc, err := document(text, defs)
	if err != nil {
		return nil, err
	}
	c := compiler{doc: doc, nodes: map[string]*node{}, describes: describes}
	return c.compile(place{}, doc.root)
}

// ErrInterrupted means that Options.Pause ended the check without a result.
var ErrInterrupted = errors.New("the check was interrupted")

// Options of one check.
type Options struct {
	// Open allows unknown members in any object, because the author of the text
	// may know a newer schema.
	Open bool
	// Pause is called every PauseSteps steps, on the goroutine of the check. If
	// it returns false, the check ends with ErrInterrupted. Nil never
	// interrupts.
	Pause func() bool
}

// Check returns the violations of the text, or none if it matches. A text that
// is not JSON matches no schema. Check does not allocate for a text that
// matches, unless names or strings have escapes.
func (s *Schema) Check(text []byte) []Violation {
	violations, _, _ := s.CheckWith(text, Options{})
	return violations
}

// CheckOpen is Check with Options.Open.
func (s *Schema) CheckOpen(text []byte) []Violation {
	violations, _, _ := s.CheckWith(text, Options{Open: true})
	return violations
}

// CheckWith is Check with options. It also returns the number of steps it has
// taken. The error is ErrInterrupted or nil.
func (s *Schema) CheckWith(text []byte, o Options) (violations []Violation, steps int, err error) {
	w := newWalker(text, o)
	most := w.left
	if !w.whole(s.root) && w.fault != interrupted {
		violations, w = s.explain(w)
	}
	if w.fault == interrupted {
		violations, err = nil, ErrInterrupted
	}
	return violations, most - max(0, w.left), err
}

// kinds is a set of types of JSON values.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBool
	kindObject
	kindArray
	kindNumber
	kindString
	kindInteger
)

// node is a compiled schema.
type node struct {
	at    place // its place in the schema
	never bool  // this is the schema false, which no value matches

	kinds  kinds // accepted types of values; 0 means all
	choice *choice
	number *numberRule
	text   *textRule
	object *objectRule
	array  *arrayRule
	format format // format of an integer

	// Schemas that are applied to the same value: each of them walks the value
	// again.
	all, any, one []*node
	not           *node
	when          *node // if, with then and otherwise
	then, other   *node
}

// repeats reports whether checking against n walks the same value more than
// once.
func (n *node) repeats() bool {
	return len(n.all) > 0 || len(n.any) > 0 || len(n.one) > 0 || n.not != nil || n.when != nil
}

// format is one of the two formats that are checked.
type format uint8

const (
	noFormat format = iota
	int64Format
	uint64Format
)

// choice is the set of values that an enum or a const allows.
type choice struct {
	text    map[string]struct{}
	numbers []number
	kinds   kinds   // which of null, true and false are allowed
	truth   [2]bool // false, true
	names   []string
}

type numberRule struct {
	least, most  *number
	above, below *number // exclusive bounds
	multipleOf   *number
}

type textRule struct {
	least, most int // code points; most -1 means no limit
	pattern     *pattern
}

type arrayRule struct {
	least, most         int // most -1 means no limit
	first               []*node
	items               *node // schema of items after first; nil allows all
	contains            *node
	leastHits, mostHits int // mostHits -1 means no limit
}

type objectRule struct {
	members     []member // sorted by name
	byName      map[string]int
	required    memberSet
	needed      []string // required members, for error texts
	patterns    []patternMember
	others      *node // schema of members that aren't named; nil allows all
	names       *node // schema of member names
	least, most int   // most -1 means no limit
	dependent   []dependent
}

type member struct {
	name   string
	node   *node // nil allows all
	listed bool  // listed in properties
}

type patternMember struct {
	pattern *pattern
	node    *node
}

// dependent is the requirement of a present member.
type dependent struct {
	member   int
	required []int
	node     *node
}

// memberSet is a set of members of an object.
type memberSet [MaxMembers / 64]uint64

func (b *memberSet) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b *memberSet) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

// lacks reports whether a member of want is not in b.
func (b *memberSet) lacks(want *memberSet) bool {
	for i := range b {
		if want[i]&^b[i] != 0 {
			return true
		}
	}
	return false
}

// find returns the index of a member, or -1 if it is unknown. next is the
// probable index, because the members of sorted texts arrive in order.
func (o *objectRule) find(name []byte, next int) int {
	if next < len(o.members) && o.members[next].name == string(name) {
		return next
	}
	if o.byName != nil {
		if i, ok := o.byName[string(name)]; ok {
			return i
		}
		return -1
	}
	for i := range o.members {
		if o.members[i].name == string(name) {
			return i
		}
	}
	return -1
}
