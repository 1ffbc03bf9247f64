package cases

import (
	"strings"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
)

// forms are the schemas of an entity type; nil means no schema.
type forms struct {
	checked                            bool // nodes check payloads against them
	commands, replies, queries, answer map[string]*schema.Schema
	events                             map[string]*schema.Schema
	state                              *schema.Schema
}

// formsOf compiles the schemas of a type.
func formsOf(m *manifest.Manifest, t *manifest.EntityType) (*forms, error) {
	f := &forms{checked: !t.Unchecked, commands: map[string]*schema.Schema{}, replies: map[string]*schema.Schema{},
		queries: map[string]*schema.Schema{}, answer: map[string]*schema.Schema{}, events: map[string]*schema.Schema{}}
	var first error
	compile := func(text []byte) *schema.Schema {
		if text == nil || first != nil {
			return nil
		}
		s, err := schema.Inspect(text, m.Defs)
		first = err
		return s
	}
	for _, c := range t.Commands {
		f.commands[c.Name], f.replies[c.Name] = compile(c.Schema), compile(c.Reply)
	}
	for _, q := range t.Queries {
		f.queries[q.Name], f.answer[q.Name] = compile(q.Schema), compile(q.Reply)
	}
	for _, e := range t.Events {
		f.events[e.Type] = compile(e.Schema)
	}
	f.state = compile(t.State)
	return f, first
}

// schemaMismatch describes how a payload violates a schema; empty if it matches. open is
// for messages between entities, in which unknown members are allowed.
func schemaMismatch(s *schema.Schema, payload []byte, open bool) string {
	if s == nil {
		return ""
	}
	check := s.Check
	if open {
		check = s.CheckOpen
	}
	if len(payload) == 0 {
		payload = []byte("null") // a node passes this to the guest too if there is no payload
	}
	var out []string
	for _, v := range check(payload) {
		out = append(out, v.String())
	}
	return strings.Join(out, "; ")
}
