package clientgen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"go/token"
	"regexp"
	"strings"

	"github.com/hostd/hostd/abi/manifest"
)

// golang generates a package on top of the Go client.
func golang(types []entityType, name string) ([]byte, error) {
	taken := names{"Int64": true, "Uint64": true}
	g := &goWriter{shapes: newShapes(taken), known: map[string]*declaration{}}
	var about bytes.Buffer
	for _, t := range types {
		if err := g.entity(&about, t); err != nil {
			return nil, err
		}
	}
	for _, d := range g.shapes.declared {
		g.known[d.name] = d
	}
	var declared bytes.Buffer
	for i := 0; i < len(g.shapes.declared); i++ { // rendering declares more
		g.declaration(&declared, g.shapes.declared[i])
	}
	var out bytes.Buffer
	for _, l := range header(types) {
		// Tools recognize generated code by a line of this form.
		fmt.Fprintln(&out, "//", strings.Replace(l, "; DO", ". DO", 1))
	}
	body := about.String() + declared.String()
	fmt.Fprintf(&out, "\n// Package %s calls entities of the types %s.\npackage %s\n\nimport (\n", name, strings.Join(entityNames(types), ", "), name)
	for _, path := range []string{"context", "encoding/json", "fmt", "iter", "strconv", "", clientPath} {
		if path == "" {
			out.WriteString("\n")
		} else if at := strings.LastIndexByte(path, '/') + 1; strings.Contains(body+g.helpers(body), path[at:]+".") {
			fmt.Fprintf(&out, "%q\n", path)
		}
	}
	out.WriteString(")\n\n" + body + g.helpers(body))
	return format.Source(out.Bytes())
}

const clientPath = "github.com/hostd/hostd/api/client"

func entityNames(types []entityType) []string {
	var out []string
	for _, t := range types {
		out = append(out, t.Name)
	}
	return out
}

// checkPackage returns an error if a name is not a valid package name.
func checkPackage(name string) error {
	if !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(name) || token.IsKeyword(name) || name == "main" {
		return fmt.Errorf("%q cannot be the name of a Go package: set --package", name)
	}
	return nil
}

type goWriter struct {
	shapes *shapes
	known  map[string]*declaration
}

// entity writes the methods of a type, and declares their payload types.
func (g *goWriter) entity(out *bytes.Buffer, t entityType) error {
	base := g.shapes.names.take(pascal(t.Name))
	fmt.Fprintf(out, "// %s is one entity of the type %s.\ntype %s struct {\nClient *client.Client\nID string\n}\n\n", base, t.Name, base)
	methods := names{"Client": true, "ID": true}
	for _, c := range t.forClients() {
		in, back, err := g.pair(t, c, "payload")
		if err != nil {
			return err
		}
		method := methods.take("Send" + pascal(c.Name))
		fmt.Fprintf(out, "// %s sends the command %s.\n// The functions in change may set the command's id, the time of its first\n// attempt, or the expected sequence. It fails as client.Client.Send does.\n", method, quoteJSON(c.Name))
		fmt.Fprintf(out, "func (e %s) %s(ctx context.Context, payload %s, change ...func(*client.Command)) (reply %s, outcome client.Reply, err error) {\n", base, method, in, back)
		fmt.Fprintf(out, "cmd := client.Command{EntityType: %s, EntityID: e.ID, Name: %s}\n", quoteJSON(t.Name), quoteJSON(c.Name))
		g.marshal(out, t, "cmd.Data", "return reply, outcome, err")
		out.WriteString("for _, c := range change {\nc(&cmd)\n}\nif outcome, err = e.Client.Send(ctx, cmd); err != nil {\nreturn reply, outcome, err\n}\n")
		g.unmarshal(out, t, "outcome.Data", "reply, outcome")
	}
	for _, q := range t.Queries {
		in, back, err := g.pair(t, q, "query")
		if err != nil {
			return err
		}
		method := methods.take("Query" + pascal(q.Name))
		fmt.Fprintf(out, "// %s runs the query %s.\n// The functions in change may request an answer from memory.\n", method, quoteJSON(q.Name))
		fmt.Fprintf(out, "func (e %s) %s(ctx context.Context, payload %s, change ...func(*client.Query)) (reply %s, answer client.Answer, err error) {\n", base, method, in, back)
		fmt.Fprintf(out, "q := client.Query{EntityType: %s, EntityID: e.ID, Name: %s}\n", quoteJSON(t.Name), quoteJSON(q.Name))
		g.marshal(out, t, "q.Data", "return reply, answer, err")
		out.WriteString("for _, c := range change {\nc(&q)\n}\nif answer, err = e.Client.Query(ctx, q); err != nil {\nreturn reply, answer, err\n}\n")
		g.unmarshal(out, t, "answer.Data", "reply, answer")
	}
	if t.State != nil {
		if _, err := g.payload(t, t.State, "state"); err != nil {
			return err
		}
	}
	g.codes(out, t, base)
	return g.events(out, t, base)
}

// codes writes the rejection codes that a type lists.
func (g *goWriter) codes(out *bytes.Buffer, t entityType, base string) {
	written := map[string]bool{}
	for _, c := range t.forClients() {
		for _, code := range c.Rejections {
			if written[code] {
				continue
			}
			written[code] = true
			name := g.shapes.names.take(base + "Rejected" + pascal(code))
			fmt.Fprintf(out, "// %s is a code of client.RejectedError.\nconst %s = %s\n\n", name, name, quoteJSON(code))
		}
	}
}

// events writes the events of a type and the functions that read them.
func (g *goWriter) events(out *bytes.Buffer, t entityType, base string) error {
	event := g.shapes.names.take(base + "Event")
	other := g.shapes.names.take(base + "OtherEvent")
	var cases, kinds bytes.Buffer
	var listed []string
	for _, e := range t.Events {
		data, err := g.payload(t, e.Schema, e.Type, "event")
		if err != nil {
			return err
		}
		name := g.shapes.names.take(base + pascal(e.Type))
		listed = append(listed, name)
		fmt.Fprintf(&kinds, "// %s is an event of the type %s.\ntype %s struct {\nData %s\n}\n\nfunc (%s) is%s() {}\n\n", name, quoteJSON(e.Type), name, data, name, event)
		fmt.Fprintf(&cases, "case %s:\nvar out %s\n", quoteJSON(e.Type), name)
		if t.Encoding == manifest.Bytes {
			cases.WriteString("out.Data = e.Data\nreturn out, nil\n")
		} else {
			cases.WriteString("if len(e.Data) > 0 {\nif err := json.Unmarshal(e.Data, &out.Data); err != nil {\nreturn nil, fmt.Errorf(\"the event %d of the type %s: %w\", e.Sequence, e.Type, err)\n}\n}\nreturn out, nil\n")
		}
	}
	fmt.Fprintf(out, "// %s is one of these:\n//\n//\t%s\ntype %s interface{ is%s() }\n\n", event, strings.Join(append(listed, other), "\n//\t"), event, event)
	out.Write(kinds.Bytes())
	fmt.Fprintf(out, "// %s is an event of a type that the module does not list,\n// such as \"hostd.deleted\", which ends the life of an entity.\ntype %s struct{ client.Event }\n\nfunc (%s) is%s() {}\n\n", other, other, other, event)
	read := g.shapes.names.take("Read" + event)
	fmt.Fprintf(out, "// %s reads an event of an entity of the type %s.\nfunc %s(e client.Event) (%s, error) {\n", read, t.Name, read, event)
	if cases.Len() > 0 {
		fmt.Fprintf(out, "switch e.Type {\n%s}\n", cases.String())
	}
	fmt.Fprintf(out, "return %s{e}, nil\n}\n\n", other)
	delivery, subscribe := g.shapes.names.take(base+"Delivery"), g.shapes.names.take("Subscribe"+base)
	fmt.Fprintf(out, "// %s is an event that a subscription delivers, together with its typed form.\ntype %s struct {\nclient.Delivery\nTold %s\n}\n\n", delivery, delivery, event)
	fmt.Fprintf(out, `// %s iterates over the events of the type %s
// as client.Client.Subscribe does. An event that cannot be read ends it too.
func %s(ctx context.Context, c *client.Client, s client.Subscription) iter.Seq2[%s, error] {
	s.EntityType = %s
	return func(yield func(%s, error) bool) {
		for d, err := range c.Subscribe(ctx, s) {
			var told %s
			if err == nil {
				told, err = %s(d.Event)
			}
			if !yield(%s{d, told}, err) || err != nil {
				return
			}
		}
	}
}

`, subscribe, t.Name, subscribe, delivery, quoteJSON(t.Name), delivery, event, read, delivery)
	return nil
}

func (g *goWriter) pair(t entityType, n manifest.Named, word string) (in, back string, err error) {
	if in, err = g.payload(t, n.Schema, n.Name, word); err == nil {
		back, err = g.payload(t, n.Reply, n.Name, "reply")
	}
	return in, back, err
}

// payload returns the type of a payload.
func (g *goWriter) payload(t entityType, schema json.RawMessage, words ...string) (string, error) {
	if t.Encoding == manifest.Bytes {
		return "[]byte", nil
	}
	s, err := g.shapes.declare(t.module, schema, append([]string{t.Name}, words...)...)
	if err != nil {
		return "", err
	}
	if s.kind == reference {
		return s.name, nil
	}
	return rawJSON, nil
}

const rawJSON = "json.RawMessage"

func (g *goWriter) marshal(out *bytes.Buffer, t entityType, to, fail string) {
	if t.Encoding == manifest.Bytes {
		fmt.Fprintf(out, "%s = payload\n", to)
		return
	}
	fmt.Fprintf(out, "if %s, err = json.Marshal(payload); err != nil {\n%s\n}\n", to, fail)
}

func (g *goWriter) unmarshal(out *bytes.Buffer, t entityType, from, results string) {
	if t.Encoding == manifest.Bytes {
		fmt.Fprintf(out, "return %s, %s, nil\n}\n\n", from, strings.Split(results, ", ")[1])
		return
	}
	fmt.Fprintf(out, "if len(%s) > 0 {\nerr = json.Unmarshal(%s, &reply)\n}\nreturn %s, err\n}\n\n", from, from, results)
}

// declaration writes a type. A shape that is either null or an object becomes a
// struct, which null leaves unchanged.
func (g *goWriter) declaration(out *bytes.Buffer, d *declaration) {
	doc := d.name + " is " + d.doc
	if d.doc == "" {
		doc = d.name + " has the form that the module's schema describes."
	}
	fmt.Fprintf(out, "// %s\n", doc)
	s, _ := nullable(d.shape)
	switch {
	case s.kind == object && validTagNames(s):
		fmt.Fprintf(out, "type %s struct {\n", d.name)
		members := names{}
		for _, f := range s.fields {
			name := members.take(pascal(f.name))
			of, zero := g.typeOf(f.shape, d.name+name), ""
			if !f.required {
				zero = ",omitzero"
				if !strings.HasPrefix(of, "[]") && !strings.HasPrefix(of, "map[") && !strings.HasPrefix(of, "*") && of != rawJSON {
					of = "*" + of
				}
			}
			if f.doc != "" {
				fmt.Fprintf(out, "// %s\n", f.doc)
			}
			fmt.Fprintf(out, "%s %s `json:\"%s%s\"`\n", name, of, f.name, zero)
		}
		out.WriteString("}\n\n")
	case s.kind == list || s.kind == mapping:
		fmt.Fprintf(out, "type %s %s\n\n", d.name, g.typeOf(s, d.name))
	default:
		fmt.Fprintf(out, "type %s = %s\n\n", d.name, g.typeOf(s, d.name))
	}
}

// validTagNames reports whether all field names are valid in struct tags.
func validTagNames(s *shape) bool {
	for _, f := range s.fields {
		if !regexp.MustCompile(`^[\pL\pN!#$%&()*+\-./:;<=>?@\[\]^_{|}~ ]+$`).MatchString(f.name) || f.name == "-" {
			return false
		}
	}
	return true
}

// nullable removes null from the alternatives of a shape.
func nullable(s *shape) (*shape, bool) {
	if s.kind != union {
		return s, false
	}
	rest := &shape{kind: union}
	for _, one := range s.of {
		if one.kind != null && (one.kind != literal || one.value != nil) {
			rest.of = append(rest.of, one)
		}
	}
	if len(rest.of) == len(s.of) {
		return s, false
	}
	if len(rest.of) == 1 {
		return rest.of[0], true
	}
	return rest, true
}

// typeOf returns a shape as a Go type. If the type needs a name, it is derived
// from name.
func (g *goWriter) typeOf(s *shape, name string) string {
	inner, null := nullable(s)
	out := g.valueOf(inner, name)
	if null && !strings.HasPrefix(out, "[]") && !strings.HasPrefix(out, "map[") && !strings.HasPrefix(out, "*") && out != rawJSON {
		return "*" + out
	}
	return out
}

func (g *goWriter) valueOf(s *shape, name string) string {
	switch s.kind {
	case boolean:
		return "bool"
	case integer:
		if s.format == "uint64" {
			return "uint64"
		}
		return "int64"
	case number:
		return "float64"
	case text:
		return "string"
	case literal:
		switch s.value.(type) {
		case string:
			return "string"
		case bool:
			return "bool"
		}
	case list:
		return "[]" + g.typeOf(s.item, name+"Item")
	case mapping:
		return "map[string]" + g.typeOf(s.item, name+"Value")
	case object:
		if !validTagNames(s) {
			return rawJSON
		}
		d := &declaration{name: g.shapes.names.take(name), shape: s}
		g.shapes.declared, g.known[d.name] = append(g.shapes.declared, d), d
		return d.name
	case union:
		return unionOf(s)
	case reference:
		if d := g.known[s.name]; d != nil {
			// A recursive type needs a pointer.
			if of, null := nullable(d.shape); null && of.kind == object {
				return "*" + s.name
			}
		}
		return s.name
	}
	return rawJSON
}

// unionOf returns the type of a union: for a number or a text, for several
// texts, or else for any JSON.
func unionOf(s *shape) string {
	texts, numbers, format := 0, 0, ""
	for _, one := range s.of {
		if _, is := one.value.(string); one.kind == text || one.kind == literal && is {
			texts++
		} else if one.kind == integer {
			numbers, format = numbers+1, one.format
		}
	}
	switch {
	case texts == len(s.of):
		return "string"
	case len(s.of) == 2 && texts == 1 && numbers == 1 && format == "int64":
		return "Int64"
	case len(s.of) == 2 && texts == 1 && numbers == 1 && format == "uint64":
		return "Uint64"
	}
	return rawJSON
}

// helpers returns the number types that body uses.
func (g *goWriter) helpers(body string) string {
	out := ""
	for _, n := range []struct{ name, of, parse string }{{"Int64", "int64", "ParseInt"}, {"Uint64", "uint64", "ParseUint"}} {
		if !regexp.MustCompile(`\b` + n.name + `\b`).MatchString(body) {
			continue
		}
		out += fmt.Sprintf(`// %[1]s is a number that JSON may have as digits in a string.
type %[1]s %[2]s

// UnmarshalJSON reads a number, or a string of its digits.
func (n *%[1]s) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	v, err := strconv.%[3]s(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%%s is not a 64-bit number", data)
	}
	*n = %[1]s(v)
	return nil
}

`, n.name, n.of, n.parse)
	}
	return out
}
