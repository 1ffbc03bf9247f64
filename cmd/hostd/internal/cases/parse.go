package cases

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
)

// parser parses the nodes of one file.
type parser struct{ file string }

// members are the allowed members of an object, and how each is parsed.
type members map[string]func(*yaml.Node) error

// placedError is an error that already has a position.
type placedError struct{ error }

func (p parser) fault(n *yaml.Node, format string, args ...any) error {
	return placedError{fmt.Errorf("%s:%d: %s", p.file, n.Line, fmt.Sprintf(format, args...))}
}

// at adds a position to an error, unless it has one.
func (p parser) at(n *yaml.Node, err error) error {
	var placed placedError
	if err == nil || errors.As(err, &placed) {
		return err
	}
	return p.fault(n, "%v", err)
}

// members parses an object. It rejects an unknown member and suggests the
// member that was probably meant.
func (p parser) members(n *yaml.Node, what string, known members) error {
	if n = resolve(n); n.Kind != yaml.MappingNode {
		return p.fault(n, "%s must be an object", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, ok := known[key.Value]
		switch {
		case !ok:
			names := slices.Sorted(maps.Keys(known))
			if near, found := schema.Nearest(key.Value, slices.Values(names)); found {
				return p.fault(key, "%s has no %q: did you mean %s?", what, key.Value, near)
			}
			return p.fault(key, "%s has no %q, must be one of %s", what, key.Value, strings.Join(names, ", "))
		case seen[key.Value]:
			return p.fault(key, "%q is duplicated", key.Value)
		}
		seen[key.Value] = true
		if err := read(value); err != nil {
			return p.at(value, err)
		}
	}
	return nil
}

func (p parser) list(n *yaml.Node, what string, each func(*yaml.Node) error) error {
	if n = resolve(n); n.Kind != yaml.SequenceNode {
		return p.fault(n, "%s must be a list", what)
	}
	for _, item := range n.Content {
		if err := each(item); err != nil {
			return p.at(item, err)
		}
	}
	return nil
}

// resolve returns the node that an alias refers to.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func keep(to **yaml.Node) func(*yaml.Node) error {
	return func(n *yaml.Node) error { *to = n; return nil }
}

func (p parser) text(to *string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n = resolve(n); n.Kind != yaml.ScalarNode || n.Value == "" {
			return p.fault(n, "the value must be a string")
		}
		*to = n.Value
		return nil
	}
}

func (p parser) texts(to *[]string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		return p.list(n, "this", func(n *yaml.Node) error {
			var one string
			err := p.text(&one)(n)
			*to = append(*to, one)
			return err
		})
	}
}

func (p parser) time(to *time.Time) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		at, err := time.Parse(time.RFC3339Nano, resolve(n).Value)
		if err != nil {
			return p.fault(n, "the value must be a time such as 2026-01-01T00:00:00Z")
		}
		*to = at
		return nil
	}
}

// version parses the version of a state.
func (p parser) version(to *int) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if err := resolve(n).Decode(to); err != nil || *to < 1 || *to > manifest.MaxStateVersion {
			return p.fault(n, "the version of a state must be a number of at least 1")
		}
		return nil
	}
}

// events parses a list of events: each {TYPE: PAYLOAD}, or {event: TYPE,
// payload: PAYLOAD, tags: [TAG]}. Only expected events may have tags.
func (p parser) events(n *yaml.Node, tags bool) (out []event, err error) {
	err = p.list(n, "this", func(n *yaml.Node) error {
		n = resolve(n)
		if n.Kind == yaml.ScalarNode {
			out = append(out, event{line: n.Line, name: n.Value})
			return nil
		}
		if n.Kind != yaml.MappingNode {
			return p.fault(n, "an event must be {TYPE: PAYLOAD}")
		}
		e := event{line: n.Line}
		if len(n.Content) == 2 && (n.Content[0].Value != "event" || resolve(n.Content[1]).Kind != yaml.ScalarNode) {
			if e.name = n.Content[0].Value; resolve(n.Content[1]).ShortTag() != "!!null" {
				e.payload = n.Content[1]
			}
			out = append(out, e)
			return nil
		}
		known := members{"event": p.text(&e.name), "payload": keep(&e.payload)}
		if tags {
			known["tags"] = func(n *yaml.Node) error { e.tagged = true; return p.texts(&e.tags)(n) }
		}
		if err := p.members(n, "an event", known); err != nil {
			return err
		}
		if e.name == "" {
			return p.fault(n, "the event has no type: use {event: TYPE, payload: PAYLOAD}")
		}
		out = append(out, e)
		return nil
	})
	return out, err
}

// when parses a call.
func (p parser) when(n *yaml.Node, s *step) error {
	s.line = n.Line
	kinds := 0
	call := func(kind callKind) func(*yaml.Node) error {
		return func(n *yaml.Node) error { kinds++; s.kind = kind; return p.text(&s.name)(n) }
	}
	asSaid := false
	err := p.members(n, "a when", members{
		"command": call(callCommand), "query": call(callQuery), "timer": call(callTimer), "message": call(callMessage),
		"payload": keep(&s.payload),
		"id":      p.text(&s.id),
		"now":     p.time(&s.now),
		"due":     p.time(&s.due),
		"from":    func(n *yaml.Node) (err error) { s.from, err = p.address(n); return err },
		"as": func(n *yaml.Node) error {
			kind, name := "token", ""
			var groups []string
			err := p.members(n, "a caller", members{"kind": p.text(&kind), "name": p.text(&name), "groups": p.texts(&groups)})
			if err == nil && name == "" {
				err = p.fault(n, "the caller has no name")
			}
			asSaid = true
			s.principal = abi.AppendPrincipal(nil, kind, name, groups...)
			return err
		},
	})
	switch {
	case err != nil:
		return err
	case kinds != 1:
		return p.fault(n, "a when must have one of command, query, timer and message")
	case (s.from != address{}) != (s.kind == callMessage):
		return p.fault(n, "a message must have a from, {type: TYPE, id: ID}, and nothing else may have one")
	case !s.due.IsZero() && s.kind != callTimer:
		return p.fault(n, "only a timer may have a due time")
	case asSaid && s.kind != callCommand && s.kind != callQuery:
		return p.fault(n, "only commands and queries may have a caller")
	case s.id != "" && s.kind == callQuery:
		return p.fault(n, "a query must not have an id")
	}
	return abi.ValidateName("command", s.name)
}

func (p parser) address(n *yaml.Node) (a address, err error) {
	err = p.members(n, "an entity", members{"type": p.text(&a.entityType), "id": p.text(&a.id)})
	if err == nil {
		err = errors.Join(abi.ValidateEntityType(a.entityType), abi.ValidateEntityID(a.id))
	}
	return a, p.at(n, err)
}

// settings parses the settings that guests of the type read: {NAME: VALUE}.
func (p parser) settings(n *yaml.Node) ([]byte, error) {
	if n = resolve(n); n.Kind != yaml.MappingNode {
		return nil, p.fault(n, "settings must be {NAME: VALUE}")
	}
	var body []byte
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], ""
		if err := p.text(&value)(n.Content[i+1]); err != nil {
			return nil, err
		}
		if seen[name.Value] {
			return nil, p.fault(name, "the setting %.64q is duplicated", name.Value)
		}
		seen[name.Value] = true
		if body = abi.AppendSetting(body, name.Value, value); len(body) > abi.MaxSettingsBytes {
			return nil, p.fault(name, "the settings have more than %d bytes, including names", abi.MaxSettingsBytes)
		}
	}
	return abi.AppendSettings(nil, body), nil
}

// then parses the expected result of a call.
func (p parser) then(n *yaml.Node, w *want) error {
	err := p.members(n, "a then", members{
		"events": func(n *yaml.Node) (err error) {
			w.hasEvents = true
			w.events, err = p.events(n, true)
			return err
		},
		"reply": keep(&w.reply),
		"state": keep(&w.state),
		"rejected": func(n *yaml.Node) error {
			if resolve(n).Kind == yaml.ScalarNode {
				return p.text(&w.rejected)(n)
			}
			return p.members(n, "a rejection", members{"code": p.text(&w.rejected), "message": p.text(&w.message)})
		},
		"sends": func(n *yaml.Node) error {
			w.hasSends = true
			return p.list(n, "sends", func(n *yaml.Node) error {
				s := send{line: n.Line}
				err := p.members(n, "a send", members{
					"type": p.text(&s.to.entityType), "id": p.text(&s.to.id), "command": p.text(&s.command), "payload": keep(&s.payload),
					"onReply": p.text(&s.onReply), "onReject": p.text(&s.onReject),
				})
				w.sends = append(w.sends, s)
				return err
			})
		},
		"timers": func(n *yaml.Node) error {
			w.hasTimers = true
			return p.list(n, "timers", func(n *yaml.Node) error {
				t, err := p.timer(n)
				w.timers = append(w.timers, t)
				return err
			})
		},
		"deleted": func(n *yaml.Node) error { return resolve(n).Decode(&w.deleted) },
	})
	if err == nil && w.message != "" && w.rejected == "" {
		err = p.fault(n, "the rejection has no code")
	}
	if err == nil && w.rejected != "" && (w.hasEvents || w.reply != nil || w.hasSends || w.hasTimers || w.deleted) {
		err = p.fault(n, "a rejection must not have events, a reply, sends or timers")
	}
	return err
}

func (p parser) timer(n *yaml.Node) (t timer, err error) {
	t.line = n.Line
	err = p.members(n, "a timer", members{
		"name": p.text(&t.name), "command": p.text(&t.command), "payload": keep(&t.payload), "schedule": p.text(&t.schedule),
		"cancel": func(n *yaml.Node) error { t.cancel = true; return p.text(&t.name)(n) },
		"in": func(n *yaml.Node) (err error) {
			t.hasIn = true
			t.in, err = time.ParseDuration(resolve(n).Value)
			return err
		},
	})
	if err == nil && (t.name == "" || t.cancel && (t.command != "" || t.payload != nil || t.hasIn || t.schedule != "")) {
		err = p.fault(n, "a timer must be {name: NAME, in: 1h, command: COMMAND} or {cancel: NAME}")
	}
	return t, err
}
