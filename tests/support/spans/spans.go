package spans

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"golang.org/x/exp/trace"
)

// Doing is the state of a goroutine during a Span.
type Doing uint8

const (
	// Waits: the goroutine was blocked, and was unblocked by the network or a
	// timer, not by a goroutine in the trace.
	Waits Doing = iota
	// Woken: the goroutine was runnable but had no processor yet.
	Woken
	// Runs: the goroutine ran on a processor.
	Runs
	// Calls: the goroutine was in a system call.
	Calls
)

// Span is a part of the time of a request.
type Span struct {
	// Role is the role of the goroutine for which the request waited; empty if the
	// goroutine has none.
	Role string
	// Next is the role of the goroutine that was woken at the end of the span,
	// or Role if the same goroutine continued.
	Next  string
	Doing Doing
	// Call is the function of the program that made the system call, if Doing
	// is Calls.
	Call string
	Time time.Duration
}

// Usage adds up the time of all goroutines of a role.
type Usage struct {
	Runs, Calls, Woken time.Duration
	Wakes              int // number of transitions from blocked to runnable
}

// Trace is an analyzed trace.
type Trace struct {
	goroutines map[trace.GoID]*goroutine
	length     time.Duration
}

// goroutine is the history of one goroutine within the trace.
type goroutine struct {
	role   string
	states []state
}

// state lasts until the next state begins.
type state struct {
	began trace.Time
	is    trace.GoState
	by    trace.GoID // goroutine that made it runnable
	call  string
}

// Read reads a trace. It calls role with the functions on a goroutine's stack,
// outermost first, until role returns a name that is not empty.
func Read(r io.Reader, role func(function string) string) (*Trace, error) {
	events, err := trace.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read a trace: %w", err)
	}
	t := &Trace{goroutines: map[trace.GoID]*goroutine{}}
	var first, last trace.Time
	for {
		ev, err := events.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read a trace: %w", err)
		}
		if first == 0 {
			first = ev.Time()
		}
		last = ev.Time()
		if ev.Kind() != trace.EventStateTransition {
			continue
		}
		st := ev.StateTransition()
		if st.Resource.Kind != trace.ResourceGoroutine {
			continue
		}
		t.note(ev, st, role)
	}
	t.length = last.Sub(first)
	return t, nil
}

func (t *Trace) note(ev trace.Event, st trace.StateTransition, role func(string) string) {
	id := st.Resource.Goroutine()
	from, to := st.Goroutine()
	g := t.goroutines[id]
	if g == nil {
		g = &goroutine{}
		t.goroutines[id] = g
	}
	functions := stack(st.Stack)
	for i := len(functions) - 1; i >= 0 && g.role == ""; i-- {
		g.role = role(functions[i])
	}
	if from == to && len(g.states) > 0 {
		return // the trace repeats the current state
	}
	s := state{began: ev.Time(), is: to, by: trace.NoGoroutine}
	switch {
	case to == trace.GoRunnable && (from == trace.GoWaiting || from == trace.GoNotExist):
		s.by = ev.Goroutine()
	case to == trace.GoSyscall:
		for _, f := range functions {
			if !strings.HasPrefix(f, "runtime.") && !strings.HasPrefix(f, "syscall.") && !strings.HasPrefix(f, "internal/") {
				s.call = f
				break
			}
		}
	}
	g.states = append(g.states, s)
}

// stack returns the functions of a stack, innermost first.
func stack(s trace.Stack) (functions []string) {
	for f := range s.Frames() {
		functions = append(functions, f.Func)
	}
	return functions
}

// Usage returns the usage of each role.
func (t *Trace) Usage() map[string]Usage {
	sum := map[string]Usage{}
	for _, g := range t.goroutines {
		u := sum[g.role]
		for i, s := range g.states {
			if i+1 == len(g.states) {
				break
			}
			took := g.states[i+1].began.Sub(s.began)
			switch s.is {
			case trace.GoRunning:
				u.Runs += took
			case trace.GoSyscall:
				u.Calls += took
			case trace.GoRunnable:
				u.Woken += took
				if i > 0 && g.states[i-1].is == trace.GoWaiting {
					u.Wakes++
				}
			}
		}
		sum[g.role] = u
	}
	return sum
}

// Requests splits the time of each request into spans. A request is a goroutine
// of the role that began and ended within the trace. Walking back from its end,
// each span belongs to the goroutine that the request waited for: while a
// goroutine was blocked, that is the goroutine that unblocked it. The spans of
// a request therefore cover its time without a gap.
func (t *Trace) Requests(role string) [][]Span {
	var all [][]Span
	for id, g := range t.goroutines {
		last := len(g.states) - 1
		if g.role != role || last < 1 || g.states[0].by == trace.NoGoroutine || g.states[last].is != trace.GoNotExist {
			continue
		}
		all = append(all, t.path(id, g.states[0].began, g.states[last].began))
	}
	return all
}

func (t *Trace) path(id trace.GoID, begin, end trace.Time) (spans []Span) {
	next := t.goroutines[id].role
	for at := end; at > begin; {
		g := t.goroutines[id]
		i := sort.Search(len(g.states), func(i int) bool { return g.states[i].began >= at }) - 1
		if i < 0 {
			spans = append(spans, Span{Role: g.role, Next: next, Time: at.Sub(begin)}) // the part before the trace began
			break
		}
		s := g.states[i]
		span := Span{Role: g.role, Next: next, Call: s.call, Time: at.Sub(max(s.began, begin))}
		switch s.is {
		case trace.GoRunnable:
			span.Doing = Woken
		case trace.GoRunning:
			span.Doing = Runs
		case trace.GoSyscall:
			span.Doing = Calls
		}
		spans = append(spans, span)
		at, next = s.began, g.role
		if waker := t.goroutines[s.by]; s.is == trace.GoRunnable && waker != nil && len(waker.states) > 0 && waker.states[0].began < at {
			id = s.by
		}
	}
	for i, j := 0, len(spans)-1; i < j; i, j = i+1, j-1 {
		spans[i], spans[j] = spans[j], spans[i]
	}
	return spans
}
