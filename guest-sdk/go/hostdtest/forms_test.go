package hostdtest

import (
	"strings"
	"testing"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

type kind string

// liar encodes itself in a different form than its JSONSchema method describes.
type liar struct{}

func (liar) MarshalJSON() ([]byte, error)  { return []byte(`7`), nil }
func (*liar) UnmarshalJSON(b []byte) error { return nil }
func (liar) JSONSchema() string            { return `{"type":"string"}` }

type (
	amount struct {
		N    int32 `json:"n" hostd:"required,min=1"`
		Kind kind  `json:"kind,omitempty" hostd:"enum=a|b"`
	}
	lies struct {
		Is liar `json:"is"`
	}
)

func formed(options ...hostd.Option) *hostd.Type[state] {
	e := hostd.Entity[state]("e", hostd.JSON, options...)
	hostd.Event(e, "set", func(s *state, w wasTo) { s.N = w.N })
	hostd.Command(e, "set", func(c *hostd.Context, s *state, cmd amount) (state, error) {
		c.Emit(wasTo{int64(cmd.N)})
		return *s, nil
	})
	hostd.Command(e, "lie", func(*hostd.Context, *state, hostd.None) (lies, error) { return lies{}, nil })
	hostd.Command(e, "send", func(c *hostd.Context, s *state, _ hostd.None) (hostd.None, error) {
		c.Send("e", "other", "set", amount{})
		return hostd.None{}, nil
	})
	hostd.Query(e, "get", func(_ *hostd.View, s *state, q amount) (state, error) { return *s, nil })
	return e
}

// TestPayloadsAreValidatedAgainstSchemas checks that the driver validates payloads
// like a host, which does not validate the payloads of timers.
func TestPayloadsAreValidatedAgainstSchemas(t *testing.T) {
	d := New(t, formed())
	for payload, why := range map[string]string{
		`{"n":0}`: "n: is less than 1", `{"m":1}`: `unknown member "m"`, `{"n":1,"kind":"c"}`: `kind: is not one of "a", "b"`, `{`: "is not JSON text", ``: "is null, not an object",
	} {
		if r := d.When("set", hostd.RawJSON(payload)).Rejected(hostd.CodeInvalidPayload); !strings.Contains(string(r.output.Reject.Message), why) {
			t.Errorf("%s: %s", payload, r.output.Reject.Message)
		}
		d.Query("get", hostd.RawJSON(payload)).Rejected(hostd.CodeInvalidPayload)
	}
	d.When("set", amount{N: 3, Kind: "a"}).Events(wasTo{3}).Reply(state{N: 3})
	d.Query("get", amount{N: 1}).Reply(state{N: 3})
	d.FromTimer().When("set", hostd.RawJSON(`{"n":0}`)).Events(wasTo{0})
	New(t, formed(hostd.Unchecked())).When("set", hostd.RawJSON(`{"n":0}`)).Events(wasTo{0})

	w := NewWorld(t, 1, formed())
	if o := w.Command("e", "x", "set", hostd.RawJSON(`{"n":0}`)); o.Code != hostd.CodeInvalidPayload {
		t.Errorf("in a world: %+v", o)
	}
	w.Command("e", "x", "send", nil)
	w.Run()
	if letters := w.DeadLetters(); len(letters) != 1 || letters[0].Code != hostd.CodeInvalidPayload {
		t.Errorf("a send that does not fit: %+v", letters)
	}
}

// TestReplyThatViolatesItsSchemaFails checks that a test fails if the entity's
// replies do not match its manifest.
func TestReplyThatViolatesItsSchemaFails(t *testing.T) {
	r := &recorder{TB: t}
	New(r, formed()).When("lie", nil)
	if !strings.Contains(r.text, "the reply of lie does not match its schema in the manifest: is: is a number, not a string") {
		t.Errorf("%q", r.text)
	}
}
