package cases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/guest"
)

// Codes with which a node rejects a call before it reaches the guest. A case
// can expect them.
const (
	codeUnfit       = "invalid_payload"
	codeInternal    = "INTERNAL_COMMAND"
	codeNotAccepted = "not_accepted"
)

// Result is the result of a case.
type Result struct {
	Name     string   `json:"name"`
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Passed   bool     `json:"passed"`
	Failures []string `json:"failures,omitempty"`
	Log      []string `json:"log,omitempty"` // log lines of the guest, if the case failed
}

// maxLog limits the log lines that are kept of a case.
const maxLog = 100

// run is a running case.
type run struct {
	parser
	c      *Case
	e      *entity
	forms  *forms
	calls  int
	failed []string
	prefix string // prefix of failures: the step
	logged []string
	now    int64 // unix nanoseconds
}

// Run runs a case. It returns an error only for a fault of the file or the
// engine. Faults of the module are in the result.
func Run(ctx context.Context, m *guest.Module, limits abi.Limits, c *Case) (result Result, err error) {
	r := &run{parser: parser{c.File}, c: c, now: c.now.UnixNano()}
	result = Result{Name: c.Name, File: c.File, Line: c.Line}
	entityType := c.entityType
	if types := m.Manifest().EntityTypes; entityType == "" && len(types) == 1 {
		entityType = types[0].Name
	} else if entityType == "" {
		return result, fmt.Errorf("%s:%d: the module has %d types: select one with type", c.File, c.Line, len(types))
	}
	r.e, err = newEntity(ctx, m, limits, entityType, c.id, r.line)
	if err != nil {
		return result, fmt.Errorf("%s:%d: %w", c.File, c.Line, err)
	}
	defer func() { err = errors.Join(err, r.e.close()) }()
	if r.forms, err = formsOf(m.Manifest(), r.e.about); err != nil {
		return result, err
	}
	var fault *guest.Fault
	var broken *abi.FrameError
	switch err := r.steps(); {
	case errors.As(err, &fault), errors.Is(err, errUnloadable):
		r.fail("the module failed: %v", err)
	case errors.As(err, &broken):
		r.fail("the module violates the ABI: %v", err)
	case err != nil:
		return result, err
	}
	result.Passed, result.Failures = len(r.failed) == 0, r.failed
	if !result.Passed {
		result.Log = r.logged
	}
	return result, nil
}

func (r *run) line(_ abi.LogLevel, text []byte) {
	if len(r.logged) < maxLog {
		r.logged = append(r.logged, string(text))
	}
}

func (r *run) fail(format string, args ...any) {
	r.failed = append(r.failed, r.prefix+fmt.Sprintf(format, args...))
}

// steps creates the entity from the given history and then runs the steps. It
// continues after a failure, unless the guest instance is dead.
func (r *run) steps() error {
	if err := r.addGivenEvents(); err != nil {
		return err
	}
	if err := r.e.replay(r.e.guest, live); err != nil {
		return err
	}
	state, err := r.e.snapshot(r.e.guest, live)
	if err != nil {
		return err
	}
	if err := r.checkStoredState(state); err != nil {
		return err
	}
	if r.c.state != nil {
		return r.compare("the state", r.c.state, state)
	}
	for i := range r.c.steps {
		s := &r.c.steps[i]
		if len(r.c.steps) > 1 {
			r.prefix = fmt.Sprintf("step %d, line %d: ", i+1, s.line)
		}
		if !s.now.IsZero() {
			r.now = s.now.UnixNano()
		}
		if err := r.step(s); err != nil {
			return err
		}
	}
	return nil
}

// addGivenEvents adds the case's given events to the entity's history. An event that the
// module cannot have stored is a fault of the file.
func (r *run) addGivenEvents() error {
	about := r.e.about
	if r.c.stored != nil {
		if about.Kind != manifest.DurableState {
			return r.fault(r.c.stored, "the type %s does not store states: give events", about.Name)
		}
		state, err := r.payload(r.c.stored, about.Encoding)
		if err != nil {
			return err
		}
		states := about.States()
		if err := states.Check(r.c.version); err != nil {
			return r.fault(r.c.stored, "%v", err)
		}
		if r.c.version != 0 {
			r.e.version = states.InputVersion(r.c.version)
		}
		r.e.state, r.e.sequence = state, 1
	}
	if len(r.c.given) > 0 && !about.Kind.IsReplayed() {
		return fmt.Errorf("%s:%d: the type %s stores no events", r.c.File, r.c.given[0].line, about.Name)
	}
	for _, g := range r.c.given {
		payload, err := r.payload(g.payload, about.Encoding)
		if err != nil {
			return err
		}
		if g.payload == nil && about.Encoding == manifest.JSON {
			payload = []byte("{}") // the encoding of an event without members
		}
		if about.Events != nil && !declaresEvent(about, g.name) {
			return fmt.Errorf("%s:%d: the module has no event %q", r.c.File, g.line, g.name)
		}
		if text := schemaMismatch(r.forms.events[g.name], payload, false); text != "" {
			return fmt.Errorf("%s:%d: the event %s does not match its schema: %s", r.c.File, g.line, g.name, text)
		}
		r.e.sequence++
		r.e.history = append(r.e.history, stored{r.e.sequence, r.now, g.name, payload})
	}
	return nil
}

func declaresEvent(about *manifest.EntityType, event string) bool {
	for i := range about.Events {
		if about.Events[i].Type == event {
			return true
		}
	}
	return false
}

// step makes one call and checks its result.
func (r *run) step(s *step) error {
	r.calls++
	payload, err := r.payload(s.payload, r.e.about.Encoding)
	if err != nil {
		return err
	}
	if s.kind == callQuery && !r.e.about.HasQuery(s.name) || s.kind != callQuery && !r.e.about.HasCommand(s.name) {
		r.fail("the type %s has no %s %q", r.e.about.Name, map[bool]string{true: "query", false: "command"}[s.kind == callQuery], s.name)
		return nil
	}
	before, err := r.e.snapshot(r.e.guest, live)
	if err != nil {
		return err
	}
	out := &abi.Output{}
	if code, why := r.refusal(s, payload); code != "" {
		out.Rejected, out.Reject = true, abi.Reject{Code: []byte(code), Message: []byte(why)}
	} else if out, err = r.call(s, payload); err != nil {
		return err
	}
	if !out.Rejected && s.kind != callQuery {
		r.promises(s, out)
	}
	after, err := r.settle(s, out, before)
	if err != nil {
		return err
	}
	return r.check(s, out, after)
}

// refusal returns the rejection by a node before it calls the guest; empty if
// there is none.
func (r *run) refusal(s *step, payload []byte) (code, why string) {
	about := r.e.about
	itself := s.from == address{about.Name, r.c.id}
	schema := r.forms.commands[s.name]
	switch {
	case s.kind == callTimer:
		return "", "" // the entity itself has set the timer
	case s.kind == callCommand && about.IsInternal(s.name):
		return codeInternal, "the command is internal"
	case s.kind == callMessage && !itself && !abi.MatchesType(about.AcceptsFrom, s.from.entityType):
		return codeNotAccepted, "the type does not accept messages from the sender's type"
	case s.kind == callQuery:
		schema = r.forms.queries[s.name]
	}
	if r.forms.checked {
		if why = schemaMismatch(schema, payload, s.kind == callMessage); why != "" {
			return codeUnfit, why
		}
	}
	return "", ""
}

// call passes a command or a query to the guest.
func (r *run) call(s *step, payload []byte) (*abi.Output, error) {
	env := guest.Env{Now: r.now, Seed: uint64(r.calls)}
	f := abi.AppendSequence(r.e.frames[:0], r.e.sequence)
	f = abi.AppendPayload(abi.AppendName(f, s.name), payload)
	f = abi.AppendNow(f, r.now)
	f = append(append(f, r.c.settings...), s.principal...)
	mode := r.e.mode()
	var raw []byte
	var err error
	if s.kind == callQuery {
		mode = abi.QueryOnly
		raw, err = r.e.guest.Query(live, f, env)
	} else {
		id := s.id
		if id == "" {
			id = "command-" + strconv.Itoa(r.calls)
		}
		f = abi.AppendSeed(abi.AppendCommandID(f, id), env.Seed)
		source := abi.Source{Kind: abi.SourceClient}
		switch s.kind {
		case callTimer:
			source.Kind = abi.SourceTimer
		case callMessage:
			source = abi.Source{Kind: abi.SourceEntity, EntityType: []byte(s.from.entityType), EntityID: []byte(s.from.id)}
		}
		f = abi.AppendSource(f, source)
		if s.kind == callTimer {
			due := r.now
			if !s.due.IsZero() {
				due = s.due.UnixNano()
			}
			f = abi.AppendDue(f, due)
		}
		raw, err = r.e.guest.Handle(live, f, env)
	}
	r.e.frames = f
	if err != nil {
		return nil, err
	}
	out := &abi.Output{}
	return out, abi.ParseOutput(out, bytes.Clone(raw), mode, &r.e.limits)
}

// promises checks the decisions of a command against the manifest.
func (r *run) promises(s *step, out *abi.Output) {
	about := r.e.about
	for _, ev := range out.Events {
		if about.Events != nil && !declaresEvent(about, string(ev.Type)) {
			r.fail("the manifest does not list the event %s", cli.Clean(string(ev.Type)))
		}
		if text := schemaMismatch(r.forms.events[string(ev.Type)], ev.Payload, false); text != "" {
			r.fail("the event %s does not match its schema: %s", cli.Clean(string(ev.Type)), text)
		}
	}
	if text := schemaMismatch(r.forms.replies[s.name], out.Reply, false); len(out.Reply) > 0 && text != "" {
		r.fail("the reply does not match its schema: %s", text)
	}
	for _, to := range out.Sends {
		itself := string(to.EntityType) == about.Name && string(to.EntityID) == r.c.id
		if !itself && !abi.MatchesType(about.Sends, to.EntityType) {
			r.fail("it sends to the type %s, which the manifest does not list in sends", cli.Clean(string(to.EntityType)))
		}
	}
}

// settle stores the decisions of a command, and checks everything that a node
// relies on in the state.
func (r *run) settle(s *step, out *abi.Output, before []byte) (after []byte, err error) {
	if out.Rejected && (len(out.Events) > 0 || out.HasState) {
		// A node discards the live state too.
		if err := r.e.renew(); err != nil {
			return nil, err
		}
	}
	if !out.Rejected && s.kind != callQuery {
		if err := r.e.keep(out, r.now); err != nil {
			return nil, err
		}
	}
	after, err = r.e.snapshot(r.e.guest, live)
	if err != nil {
		return nil, err
	}
	switch {
	case s.kind == callQuery || out.Rejected:
		if !bytes.Equal(before, after) {
			r.fail("the state changed although nothing is stored\n%s", differ(before, after, false))
		}
	case out.HasState && !out.Delete && !bytes.Equal(out.State, after):
		r.fail("the stored state differs from the state in memory\n%s", differ(out.State, after, false))
	default:
		return after, r.checkStoredState(after)
	}
	return after, nil
}

// checkStoredState checks a stored state.
func (r *run) checkStoredState(state []byte) error {
	if text := schemaMismatch(r.forms.state, state, false); text != "" {
		r.fail("the state does not match its schema: %s", text)
	}
	text, err := r.e.purity(state)
	if text != "" {
		r.fail("%s", text)
	}
	return err
}
