package hostdtest

import (
	"testing"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// forms are the schemas of an entity type, from its module's manifest.
type forms struct {
	checked                  bool // the host checks payloads against them
	commands, queries        map[string]*schema.Schema
	replies, answers, events map[string]*schema.Schema // replies of commands, replies of queries, events
	state                    *schema.Schema
}

// formsOf compiles the schemas of a guest's types, by type, and fails the test
// if a node would reject them.
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
			f.events[e.Type] = compile(e.Schema)
		}
		out[about.Name] = f
	}
	return out
}

// schemaMismatch describes how a payload violates its schema. It returns an
// empty text if the payload matches.
func schemaMismatch(s *schema.Schema, payload []byte, open bool) string {
	if s == nil {
		return ""
	}
	check := s.Check
	if open {
		check = s.CheckOpen
	}
	if len(payload) == 0 {
		payload = []byte("null") // the host checks a missing payload as null
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

// refusal returns why the host rejects a payload of a query or a command. open
// is set for messages between entities, in which unknown members are allowed.
func (f *forms) refusal(of map[string]*schema.Schema, name string, payload []byte, open bool) string {
	if !f.checked {
		return ""
	}
	return schemaMismatch(of[name], payload, open)
}

// requireSchema fails the test if an encoded payload does not match its schema, because
// clients rely on the schema.
func requireSchema(t testing.TB, what string, s *schema.Schema, payload []byte) {
	t.Helper()
	if text := schemaMismatch(s, payload, false); text != "" {
		t.Errorf("%s does not match its schema in the manifest: %s\n%s", what, text, payload)
	}
}
