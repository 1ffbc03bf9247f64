package hostdtest

import (
	"fmt"
	"strings"
	"testing"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

type (
	state struct{ N, Hidden int64 }
	set   struct{ N int64 }
	wasTo struct{ N int64 }
)

// entity returns a type with the given fault, which the driver must detect.
func entity(fault string) *hostd.Type[state] {
	e := hostd.Entity[state]("e", hostd.JSON)
	calls := int64(0)
	hostd.Event(e, "set", func(s *state, w wasTo) {
		s.N = w.N
		if calls++; fault == "impure" {
			s.Hidden = calls
		}
	})
	hostd.Command(e, "set", func(c *hostd.Context, s *state, cmd set) (state, error) {
		if cmd.N < 0 {
			if fault == "rejected" {
				s.N = cmd.N
			}
			return state{}, hostd.Reject("negative", "must not be below 0")
		}
		if c.Emit(wasTo{cmd.N}); fault == "beside" {
			s.Hidden++
		}
		if fault == "large" {
			c.Emit(wasTo{}, strings.Repeat("x", 256))
		}
		return *s, nil
	})
	hostd.Query(e, "get", func(_ *hostd.View, s *state, _ hostd.None) (state, error) {
		if fault == "query" {
			s.N++
		}
		return *s, nil
	})
	return e
}

// recorder is a testing.TB that records failures instead of failing.
type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.text += fmt.Sprintf(format, args...) + "\n"
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func record(f func(t testing.TB)) (text string) {
	r := &recorder{}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		text = r.text
	}()
	f(r)
	return r.text
}

func TestDriverDetectsFaultyEntities(t *testing.T) {
	for fault, want := range map[string]string{
		"impure":   "the live state differs from a replay of the history",
		"beside":   "the live state differs from a replay of the history",
		"rejected": "was rejected and changed the state",
		"query":    "query get changed the state",
		"large":    "tag bytes: 256, limit 255",
		"none":     "",
	} {
		text := record(func(t testing.TB) {
			d := New(t, entity(fault))
			d.When("set", set{1}).Events(wasTo{1})
			d.When("set", set{-1}).Rejected("negative")
			d.Query("get", nil).Reply(state{N: 1})
		})
		if want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q in it", fault, text, want)
		}
	}
}

func TestUnmetExpectationsFail(t *testing.T) {
	for name, c := range map[string]struct {
		check func(*Driver[state])
		want  string
	}{
		"other event":    {func(d *Driver[state]) { d.When("set", set{1}).Events(wasTo{2}) }, `event 1 is set {"N":1}, want set {"N":2}`},
		"fewer events":   {func(d *Driver[state]) { d.When("set", set{1}).Events() }, "emitted 1 events, want 0"},
		"other reply":    {func(d *Driver[state]) { d.When("set", set{1}).Reply(state{N: 2}) }, "replied"},
		"accepted":       {func(d *Driver[state]) { d.When("set", set{1}).Rejected("negative") }, "was accepted"},
		"other code":     {func(d *Driver[state]) { d.When("set", set{-1}).Rejected("other") }, "want other"},
		"rejected":       {func(d *Driver[state]) { d.When("set", set{-1}).Reply(state{}) }, "was rejected"},
		"other state":    {func(d *Driver[state]) { d.Given(wasTo{1}).Then(state{N: 2}) }, "state is"},
		"no such tag":    {func(d *Driver[state]) { d.When("set", set{1}).Tags(1, "a") }, "want [\"a\"]"},
		"no such event":  {func(d *Driver[state]) { d.When("set", set{1}).Tags(2) }, "there is no event 2"},
		"not an event":   {func(d *Driver[state]) { d.Given(set{1}) }, "not an event"},
		"not a payload":  {func(d *Driver[state]) { d.When("set", make(chan int)) }, "chan int"},
		"holds together": {func(d *Driver[state]) { d.When("set", set{1}).Events(wasTo{1}).Reply(state{N: 1}).Tags(1) }, ""},
	} {
		text := record(func(t testing.TB) { c.check(New(t, entity(""))) })
		if c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q in it", name, text, c.want)
		}
	}
}
