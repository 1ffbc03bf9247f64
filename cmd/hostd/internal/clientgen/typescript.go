package clientgen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/api/ts"
)

// typeScript generates a client as one file whose only dependency is fetch.
func typeScript(types []entityType) ([]byte, error) {
	core := ts.Core + "\n" + importLines.ReplaceAllString(ts.Entities, "")
	taken := names{"Types": true, "Hostd": true}
	for _, m := range topLevel.FindAllStringSubmatch(core, -1) {
		taken[m[1]] = true
	}
	for _, name := range strings.Fields("Array Date Error Extract Infinity JSON Map Math Number Object Promise Record Required Response Set String Uint8Array URL") {
		taken[name] = true
	}
	s := newShapes(taken)
	var about strings.Builder
	var all []string
	for _, t := range types {
		name, err := typeScriptType(&about, s, t)
		if err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprintf("  %s: %s;\n", quote(t.Name), name))
	}
	var out bytes.Buffer
	for _, l := range header(types) {
		fmt.Fprintln(&out, "//", l)
	}
	out.WriteString("/* eslint-disable */\n\n")
	for _, d := range s.declared {
		if d.doc != "" {
			fmt.Fprintf(&out, "/** %s */\n", d.doc)
		}
		fmt.Fprintf(&out, "export type %s = %s;\n\n", d.name, typeScriptOf(d.shape, ""))
	}
	out.WriteString(about.String())
	fmt.Fprintf(&out, "/** The entity types of this client. */\nexport interface Types {\n%s}\n\n", strings.Join(all, ""))
	out.WriteString(core)
	// A class can be used only after its declaration, so the class Hostd,
	// which extends Client, comes last.
	out.WriteString("\n/** Reaches the entities of a cluster: new Hostd(\"http://127.0.0.1:7070\").entity(TYPE, ID). */\nexport class Hostd extends Client<Types> {}\n")
	return out.Bytes(), nil
}

var (
	importLines = regexp.MustCompile(`(?m)^import .*\n+`)
	topLevel    = regexp.MustCompile(`(?m)^(?:export )?(?:class|interface|type|function|const) (\w+)`)
	identifier  = regexp.MustCompile(`^[A-Za-z_$][\w$]*$`)
)

func typeScriptType(out *strings.Builder, s *shapes, t entityType) (string, error) {
	base := pascal(t.Name)
	name := s.names.take(base + "Type")
	payload := func(schema json.RawMessage, words ...string) (string, error) {
		if t.Encoding == manifest.Bytes {
			return "Uint8Array | null", nil
		}
		shape, err := s.declare(t.module, schema, append([]string{t.Name}, words...)...)
		if err != nil {
			return "", err
		}
		return typeScriptOf(shape, ""), nil
	}
	members := func(list []manifest.Named, word string, more func(manifest.Named) string) (string, error) {
		var b strings.Builder
		for _, n := range list {
			in, err := payload(n.Schema, n.Name, word)
			if err != nil {
				return "", err
			}
			back, err := payload(n.Reply, n.Name, "reply")
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "    %s: { payload: %s; reply: %s%s };\n", quote(n.Name), in, back, more(n))
		}
		return "{\n" + b.String() + "  }", nil
	}
	commands, err := members(t.forClients(), "payload", func(n manifest.Named) string { return "; rejections: " + rejections(n) })
	if err != nil {
		return "", err
	}
	if t.Commands == nil {
		commands = "Record<string, { payload: unknown; reply: unknown; rejections: string }>"
	}
	queries, err := members(t.Queries, "query", func(manifest.Named) string { return "" })
	if err != nil {
		return "", err
	}
	if t.Queries == nil {
		queries = "Record<string, { payload: unknown; reply: unknown }>"
	}
	var events []string
	for _, e := range t.Events {
		data, err := payload(e.Schema, e.Type, "event")
		if err != nil {
			return "", err
		}
		events = append(events, fmt.Sprintf("\n  | Event<%s, %s>", quoteJSON(e.Type), data))
	}
	events = append(events, `
  | Event<"hostd.deleted", null>`)
	if t.Events == nil {
		events = []string{" Event"}
	}
	state := "unknown"
	if t.State != nil {
		if state, err = payload(t.State, "state"); err != nil {
			return "", err
		}
	}
	event := s.names.take(base + "Event")
	fmt.Fprintf(out, "export type %s =%s;\n\n", event, strings.Join(events, ""))
	fmt.Fprintf(out, "/** The entity type %s. */\nexport interface %s {\n  commands: %s;\n  queries: %s;\n  event: %s;\n  state: %s;\n}\n\n", t.Name, name, commands, queries, event, state)
	fmt.Fprintf(out, "export type %s = CommandOf<%s>;\n", s.names.take(base+"Command"), name)
	fmt.Fprintf(out, "export type %s = QueryOf<%s>;\n\n", s.names.take(base+"Query"), name)
	return name, nil
}

// rejections returns the type of a command's rejection codes; any string if
// they are not listed.
func rejections(n manifest.Named) string {
	if n.Rejections == nil {
		return "string"
	}
	var out []string
	for _, code := range n.Rejections {
		out = append(out, quoteJSON(code))
	}
	if len(out) == 0 {
		return "never"
	}
	return strings.Join(out, " | ")
}

func quoteJSON(s string) string {
	text, _ := json.Marshal(s) // encoding a string never fails
	return string(text)
}

// quote returns the name of a member.
func quote(name string) string {
	if identifier.MatchString(name) {
		return name
	}
	return quoteJSON(name)
}

// typeScriptOf returns a shape as a TypeScript type.
func typeScriptOf(s *shape, indent string) string {
	join := func(of []*shape, by string) string {
		var parts []string
		for _, one := range of {
			part := typeScriptOf(one, indent)
			if one.kind == union || one.kind == all {
				part = "(" + part + ")"
			}
			parts = append(parts, part)
		}
		if len(parts) == 0 {
			return "unknown"
		}
		return strings.Join(parts, by)
	}
	switch s.kind {
	case nothing:
		return "never"
	case null:
		return "null"
	case boolean:
		return "boolean"
	case integer, number:
		return "number"
	case text:
		return "string"
	case literal:
		return literalType(s.value)
	case list:
		return "Array<" + typeScriptOf(s.item, indent) + ">"
	case tuple:
		return typeScriptTuple(s, indent)
	case mapping:
		return "Record<string, " + typeScriptOf(s.item, indent) + ">"
	case object:
		var b strings.Builder
		b.WriteString("{\n")
		for _, f := range s.fields {
			if f.doc != "" {
				fmt.Fprintf(&b, "%s  /** %s */\n", indent, f.doc)
			}
			mark := "?"
			if f.required {
				mark = ""
			}
			fmt.Fprintf(&b, "%s  %s%s: %s;\n", indent, quote(f.name), mark, typeScriptOf(f.shape, indent+"  "))
		}
		return b.String() + indent + "}"
	case union:
		return join(s.of, " | ")
	case all:
		return join(s.of, " & ")
	case reference:
		return s.name
	}
	return "unknown"
}

// typeScriptTuple returns the type of a list whose first items have their own
// types. A shorter list is allowed, so it is a union of one tuple per length.
func typeScriptTuple(s *shape, indent string) string {
	var parts []string
	for _, one := range s.of {
		parts = append(parts, "("+typeScriptOf(one, indent)+")?")
	}
	if s.item != nil {
		parts = append(parts, "...Array<"+typeScriptOf(s.item, indent)+">")
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// literalType returns a value as a type. Numbers that JavaScript would round,
// and values that are not scalar, are represented by their kind.
func literalType(v any) string {
	switch v := v.(type) {
	case string:
		return quoteJSON(v)
	case bool:
		return fmt.Sprint(v)
	case nil:
		return "null"
	case json.Number:
		if n, err := v.Int64(); err == nil && n > -1<<53 && n < 1<<53 {
			return fmt.Sprint(n)
		}
		return "number"
	case []any:
		return "Array<unknown>"
	}
	return "Record<string, unknown>"
}
