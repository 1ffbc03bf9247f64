package hostdtest

import (
	"testing"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// forms are the schemas of an entity type, as its module's manifest has them.
type forms struct {
	checked                    bool // the host holds payloads to them
	commands, queries          map[string]*schema.Schema
	replies, answers, occurred map[string]*schema.Schema // of commands, of queries, events
	state                      *schema.Schema
}

// formsOf compiles the schemas of a guest's types, by type, and fails the test
// where a node would refuse them.
func formsOf(t testing.TB, guest *hostd.Guest) map[string]*forms {
	t.Helper()
	m, err := manifest.Parse(guest.Describe())
	if err == nil {
		err = m.CheckSchemas()
	}
	if err != nil {
		t.Fatal(err)
	}
	compile := func(text []byte) *schema.Schema {
		if text == nil {
			return nil
		}
		s, err := schema.Inspect(text, m.Defs)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	out := map[string]*forms{}
	for i := range m.EntityTypes {
		about := &m.EntityTypes[i]
		f := &forms{!about.Unchecked, map[string]*schema.Schema{}, map[string]*schema.Schema{}, map[string]*schema.Schema{}, map[string]*schema.Schema{}, map[string]*schema.Schema{}, compile(about.State)}
		for _, c := range about.Commands {
			f.commands[c.Name], f.replies[c.Name] = compile(c.Schema), compile(c.Reply)
		}
		for _, q := range about.Queries {
			f.queries[q.Name], f.answers[q.Name] = compile(q.Schema), compile(q.Reply)
		}
		for _, e := range about.Events {
			f.occurred[e.Type] = compile(e.Schema)
		}
		out[about.Name] = f
	}
	return out
}

// unfit says how a payload does not fit its schema; empty when it does.
func unfit(s *schema.Schema, payload []byte, open bool) string {
	if s == nil {
		return ""
	}
	check := s.Check
	if open {
		check = s.CheckOpen
	}
	if len(payload) == 0 {
		payload = []byte("null") // as the host gives none
	}
	text := ""
	for _, v := range check(payload) {
		if text != "" {
			text += "; "
		}
		text += v.String()
	}
	return text
}

// refuses says why the host refuses a payload, of a query or a command; open is
// for messages, whose unknown members pass.
func (f *forms) refuses(of map[string]*schema.Schema, name string, payload []byte, open bool) string {
	if !f.checked {
		return ""
	}
	return unfit(of[name], payload, open)
}

// wrote fails the test where what was marshalled does not fit its schema:
// clients are told that it does.
func wrote(t testing.TB, what string, s *schema.Schema, payload []byte) {
	t.Helper()
	if text := unfit(s, payload, false); text != "" {
		t.Errorf("%s does not fit the schema that the manifest has of it: %s\n%s", what, text, payload)
	}
}
