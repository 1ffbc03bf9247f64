package cases

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hostd/hostd/abi"
)

// maxFileBytes limits a case file.
const maxFileBytes = 4 << 20

// A Case is one history and the calls that follow it.
type Case struct {
	Name       string
	File       string
	Line       int
	entityType string // empty means the module's only type
	id         string
	now        time.Time
	settings   []byte // a frame with the type's settings
	given      []event
	stored     *yaml.Node // state of a durable-state type
	version    int        // version of that state; 0 means the module's own
	steps      []step
	state      *yaml.Node // if the case has no step: expected state of its history
}

// event is an event of a case, given or expected.
type event struct {
	line    int
	name    string
	payload *yaml.Node // nil means none
	tags    []string
	tagged  bool // tags are checked, even if the list is empty
}

// step is one call and its expected result.
type step struct {
	line      int
	kind      callKind
	name      string // name of the command or query
	payload   *yaml.Node
	id        string // id of the command
	now       time.Time
	due       time.Time // due time of a timer
	from      address   // sender of a message
	principal []byte    // a frame, if the caller is known
	want      want
}

type callKind int

const (
	callCommand callKind = iota
	callQuery
	callTimer
	callMessage
)

// address is an entity.
type address struct{ entityType, id string }

// want is the expected result of a call. Fields that it leaves out are not
// checked, except that an unexpected rejection always fails the case.
type want struct {
	events    []event
	hasEvents bool
	reply     *yaml.Node
	rejected  string // a code
	message   string // message of the rejection
	state     *yaml.Node
	sends     []send
	hasSends  bool
	timers    []timer
	hasTimers bool
	deleted   bool
}

type send struct {
	line              int
	to                address
	command           string
	payload           *yaml.Node
	onReply, onReject string
}

type timer struct {
	line     int
	name     string
	cancel   bool
	command  string
	payload  *yaml.Node
	in       time.Duration // time after the call
	hasIn    bool
	schedule string
}

// firstNow is the default time of the calls of a case.
var firstNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Parse parses a case file. Errors name the file and the line.
func Parse(name string, r io.Reader) ([]Case, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s: is larger than %d bytes", name, maxFileBytes)
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: contains no cases", name)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: must be a single YAML document", name)
	}
	p := parser{file: name}
	var out []Case
	err = p.members(doc.Content[0], "a file of cases", members{
		"cases": func(n *yaml.Node) error {
			return p.list(n, "cases", func(n *yaml.Node) error {
				c, err := p.oneCase(n)
				out = append(out, c)
				return err
			})
		},
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: contains no cases", name)
	}
	return out, err
}

func (p parser) oneCase(n *yaml.Node) (Case, error) {
	c := Case{File: p.file, Line: n.Line, id: "test", now: firstNow}
	var single step
	hasWhen, hasThen := false, false
	steps := false
	err := p.members(n, "a case", members{
		"name": p.text(&c.Name),
		"type": p.text(&c.entityType),
		"id":   p.text(&c.id),
		"now":  p.time(&c.now),
		"settings": func(n *yaml.Node) (err error) {
			c.settings, err = p.settings(n)
			return err
		},
		"stored":        keep(&c.stored),
		"storedVersion": p.version(&c.version),
		"given": func(n *yaml.Node) (err error) {
			c.given, err = p.events(n, false)
			return err
		},
		"when": func(n *yaml.Node) error { hasWhen = true; return p.when(n, &single) },
		"then": func(n *yaml.Node) error { hasThen = true; return p.then(n, &single.want) },
		"steps": func(n *yaml.Node) error {
			steps = true
			return p.list(n, "steps", func(n *yaml.Node) error {
				s, err := p.step(n)
				c.steps = append(c.steps, s)
				return err
			})
		},
	})
	if err == nil {
		err = abi.ValidateEntityID(c.id)
	}
	switch {
	case err != nil:
		return c, p.at(n, err)
	case c.Name == "":
		return c, p.fault(n, "the case has no name")
	case c.version != 0 && c.stored == nil:
		return c, p.fault(n, "storedVersion needs a stored state")
	case steps && (hasWhen || hasThen):
		return c, p.fault(n, "a case must have either steps, or when and then")
	case steps:
		return c, nil
	case hasWhen != hasThen && hasWhen:
		return c, p.fault(n, "the case has a when but no then")
	case hasWhen:
		c.steps = []step{single}
	case !hasThen:
		return c, p.fault(n, "the case expects nothing: add when and then, or steps")
	default:
		if c.state = single.want.state; c.state == nil {
			return c, p.fault(n, "a case without a when can only expect a state")
		}
	}
	return c, nil
}

func (p parser) step(n *yaml.Node) (s step, err error) {
	seen := 0
	err = p.members(n, "a step", members{
		"when": func(n *yaml.Node) error { seen |= 1; return p.when(n, &s) },
		"then": func(n *yaml.Node) error { seen |= 2; return p.then(n, &s.want) },
	})
	if err == nil && seen != 3 {
		err = p.fault(n, "a step must have when and then")
	}
	return s, err
}
