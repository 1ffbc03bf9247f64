package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// Formats of the flag -o.
const (
	formatTable = "table" // a table for people
	formatJSON  = "json"
	formatLines = "jsonl" // an item of a list, or the whole, in one line
	formatYAML  = "yaml"
	formatName  = "name" // the name of each item in one line
)

var formats = []string{formatTable, formatJSON, formatLines, formatYAML, formatName}

// Output is the format in which a command prints its data. All formats except
// the table are made from the JSON form of a value, so that they have the same
// members.
type Output struct {
	format    string
	program   string // value of --jq; empty prints everything
	noHeaders bool
	filter    *filter
	documents int                    // YAML documents of a stream so far
	running   func() context.Context // the context of the command
	w         io.Writer
}

// AddOutput adds the flags -o, --jq and --no-headers to a command. Their values
// are checked before the command runs.
func AddOutput(c *cobra.Command, std Stdio) *Output {
	o := &Output{w: std.Out, running: c.Context}
	c.Flags().StringVarP(&o.format, "output", "o", formatTable, "output `format`: "+strings.Join(formats[:len(formats)-1], ", ")+" or "+formats[len(formats)-1])
	c.Flags().StringVar(&o.program, "jq", "", "print the results of this jq `expression` on the JSON output, one a line, strings without quotes")
	c.Flags().BoolVar(&o.noHeaders, "no-headers", false, "omit the headers of tables")
	// It fails only for a flag that does not exist.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	Before(c, func([]string) error { return o.check(c.Flags().Changed("output"), c.Flags().Changed("jq")) })
	return o
}

// Structured reports whether data is printed for programs and not as a table.
func (o *Output) Structured() bool { return o.format != formatTable || o.filter != nil }

// check rejects an unknown format and an invalid jq expression. named says that
// the command line has -o, filtered that it has --jq.
func (o *Output) check(named, filtered bool) (err error) {
	switch {
	case !slices.Contains(formats, o.format):
		return Usagef("--output must be %[2]s or %[3]s, got %[1]q", o.format, strings.Join(formats[:len(formats)-1], ", "), formats[len(formats)-1])
	case !filtered:
		return nil
	case named && o.format != formatJSON && o.format != formatLines:
		return Usagef("--jq prints JSON: omit --output %s", o.format)
	}
	o.filter, err = newFilter(o.program)
	return err
}

// Print writes v in the selected format. In the table format it calls human.
func (o *Output) Print(v any, human func(w io.Writer)) error {
	switch {
	case o.Structured():
		return o.write(v, "  ")
	case o.noHeaders:
		human(headless{o.w})
	default:
		human(o.w)
	}
	return nil
}

// Line writes one item of a stream: v in the selected format, or text.
func (o *Output) Line(v any, text string) error {
	if o.Structured() {
		return o.write(v, "")
	}
	_, err := fmt.Fprintln(o.w, text)
	return err
}

// write writes v for programs. Only JSON is indented.
func (o *Output) write(v any, indent string) error {
	if o.filter == nil && o.format == formatJSON {
		return WriteJSON(o.w, v, indent)
	}
	text, err := marshal(v, "")
	if err != nil {
		return err
	}
	switch {
	case o.filter != nil:
		return o.filter.print(o.running(), o.w, text)
	case o.format == formatYAML:
		if o.documents++; indent == "" && o.documents > 1 {
			if _, err := io.WriteString(o.w, "---\n"); err != nil {
				return err
			}
		}
		return writeYAML(o.w, text)
	}
	for _, item := range items(text) {
		line := item
		if o.format == formatName {
			name, ok := nameOf(item)
			if !ok {
				return fmt.Errorf("-o name: this output has no names; use -o json")
			}
			line = []byte(Clean(name))
		}
		if _, err := fmt.Fprintf(o.w, "%s\n", escapeJSON(string(line))); err != nil {
			return err
		}
	}
	return nil
}

// marshal returns the JSON text of a value, or of the View of a message,
// followed by a line break.
func marshal(v any, indent string) ([]byte, error) {
	if m, ok := v.(proto.Message); ok {
		v = View(m)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return text.Bytes(), err
}

// WriteJSON writes a value, or the View of a message, and a line break. It
// escapes invisible characters.
func WriteJSON(w io.Writer, v any, indent string) error {
	text, err := marshal(v, indent)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, escapeJSON(string(text)))
	return err
}

// items returns the items of the list that an output is: a JSON array, or the
// first member that is an array of objects. An output that is no list is one
// item.
func items(text []byte) (out []json.RawMessage) {
	text = bytes.TrimSpace(text)
	if json.Unmarshal(text, &out) == nil {
		return out
	}
	for _, m := range membersOf(text) {
		var list []json.RawMessage
		if json.Unmarshal(m.value, &list) == nil && len(list) > 0 && len(list[0]) > 0 && list[0][0] == '{' {
			return list
		}
	}
	if emptyList(text) {
		return nil
	}
	return []json.RawMessage{text}
}

// emptyList reports whether an output is a list without items: an object whose
// first member is an empty array.
func emptyList(text []byte) bool {
	members := membersOf(text)
	return len(members) > 0 && string(members[0].value) == "[]"
}

type rawMember struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of a JSON object in their order; none if the
// text is not an object.
func membersOf(text []byte) (out []rawMember) {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		var m rawMember
		if err != nil || d.Decode(&m.value) != nil {
			return out
		}
		m.name, _ = name.(string)
		out = append(out, m)
	}
	return out
}

// naming lists the members that identify an item. The first of them that an
// item has is its name. Members of more specific items come first: an entity
// has a type, and a shard has nodes.
var naming = []string{"entityId", "shardId", "nodeId", "digest", "name", "subject", "id", "entityType", "clusterId", "path", "version"}

// nameOf returns the name of an item.
func nameOf(item json.RawMessage) (string, bool) {
	members := map[string]json.RawMessage{}
	if json.Unmarshal(item, &members) != nil {
		return "", false
	}
	for _, key := range naming {
		var text string
		switch value, ok := members[key]; {
		case !ok:
		case json.Unmarshal(value, &text) == nil:
			return text, true
		default:
			return string(value), true
		}
	}
	return "", false
}

// headless is a writer of tables without headers.
type headless struct{ io.Writer }
