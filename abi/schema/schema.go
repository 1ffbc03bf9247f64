package schema

import (
	"encoding/json"
	"errors"
)

// Bounds of a schema, so that compiling it and checking with it stay cheap.
const (
	MaxDepth        = 32    // of schemas in schemas, as they are written
	MaxSchemas      = 1024  // subschemas of one schema, those of the $defs it uses included
	MaxMembers      = 256   // members that one schema names
	MaxEnum         = 1024  // values of one enum
	MaxPatterns     = 64    // patterns of one schema
	MaxPatternBytes = 256   // of one pattern
	MaxPatternCode  = 2_000 // instructions that a pattern is compiled to
)

// Bounds of a check.
const (
	// MaxValueDepth is how deep values may be nested, and schemas be followed.
	MaxValueDepth = 500
	// MaxViolations is how many faults of a text are told.
	MaxViolations = 16

	// A check may take leastSteps, and stepsPerByte more for each byte of the
	// text. The number depends on the schema and the text only, so every node
	// gives the same answer. One step takes at most about 20 ns: it pays for a
	// value or a member, 16 bytes that are passed over, or two instructions of a
	// pattern. Whatever takes longer costs more steps; BenchmarkStepsAtTheirBound
	// measures it.
	leastSteps   = 100_000
	stepsPerByte = 4

	// PauseSteps is how many steps, about, are taken between two calls of
	// Options.Pause: a quarter of a millisecond.
	PauseSteps = 16_384
)

// ErrInvalid is what every error of Compile and Inspect unwraps to.
var ErrInvalid = errors.New("invalid schema")

// Error is the first fault of a schema: where it is, as a path such as
// properties.amount.minimum, and what it is. Shared says that the path begins
// at the module, in its $defs. It unwraps to ErrInvalid.
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

// Violation is a fault of a text: where, as a path such as items[3].sku, empty
// for the whole, and what. It holds names of members, and no values.
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

// Weight is what a schema takes of memory, in parts of some hundred bytes:
// subschemas, members, values of enums, and eight instructions of a pattern.
func (s *Schema) Weight() int { return s.weight }

// Compile compiles a schema to check with; defs are the $defs of the module
// around it. The error is an *Error.
func Compile(text []byte, defs map[string]json.RawMessage) (*Schema, error) {
	return compile(text, defs, false)
}

// Inspect is Compile for a schema that is a description: it may have the
// keywords that nodes do not check, and a check with it passes over them.
func Inspect(text []byte, defs map[string]json.RawMessage) (*Schema, error) {
	return compile(text, defs, true)
}

// InspectShared is Inspect for one of the $defs of a module.
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

// ErrInterrupted: Options.Pause ended the check, so there is no answer.
var ErrInterrupted = errors.New("the check was interrupted")

// Options of one check.
type Options struct {
	// Open lets members pass that an object may not have: of a text whose author
	// may know later ones.
	Open bool
	// Pause is called each PauseSteps, on the goroutine of the check; false ends
	// the check with ErrInterrupted. Nil never does.
	Pause func() bool
}

// Check returns how the text does not fit, nothing when it does. Text that is
// not JSON fits no schema. It allocates nothing for a text that fits, unless
// names or strings have escapes in them.
func (s *Schema) Check(text []byte) []Violation {
	violations, _, _ := s.CheckWith(text, Options{})
	return violations
}

// CheckOpen is Check with Options.Open.
func (s *Schema) CheckOpen(text []byte) []Violation {
	violations, _, _ := s.CheckWith(text, Options{Open: true})
	return violations
}

// CheckWith is Check with options, and returns how many steps it has taken. The
// error is ErrInterrupted.
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

// kinds are types of JSON values, as a set.
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
	at    place // where it is written
	never bool  // the schema false

	kinds  kinds // 0: all
	choice *choice
	number *numberRule
	text   *textRule
	object *objectRule
	array  *arrayRule
	format format // of an integer

	// What is applied to the same value: the walk begins again for each.
	all, any, one []*node
	not           *node
	when          *node // if, with then and otherwise
	then, other   *node
}

// repeats reports that the same value is walked more than once.
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

// choice is what an enum or a const allows.
type choice struct {
	text    map[string]struct{}
	numbers []number
	kinds   kinds   // of null, true and false
	truth   [2]bool // false, true
	names   []string
}

type numberRule struct {
	least, most  *number
	above, below *number // exclusive
	multipleOf   *number
}

type textRule struct {
	least, most int // code points; most -1 is none
	pattern     *pattern
}

type arrayRule struct {
	least, most         int // most -1 is none
	first               []*node
	items               *node // of those behind first; nil takes all
	contains            *node
	leastHits, mostHits int // mostHits -1 is none
}

type objectRule struct {
	members     []member // sorted by name
	byName      map[string]int
	required    memberSet
	needed      []string // required, for texts
	patterns    []patternMember
	others      *node // members that are named nowhere; nil takes all
	names       *node // what names have to fit
	least, most int   // most -1 is none
	dependent   []dependent
}

type member struct {
	name   string
	node   *node // nil takes all
	listed bool  // in properties
}

type patternMember struct {
	pattern *pattern
	node    *node
}

// dependent is what follows from a member being there.
type dependent struct {
	member   int
	required []int
	node     *node
}

// memberSet is a set of members of an object.
type memberSet [MaxMembers / 64]uint64

func (b *memberSet) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b *memberSet) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

// lacks reports that not all of want are in b.
func (b *memberSet) lacks(want *memberSet) bool {
	for i := range b {
		if want[i]&^b[i] != 0 {
			return true
		}
	}
	return false
}

// find returns the index of a member; -1 for one that is not known. next is
// where it probably is: sorted texts have them in order.
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
