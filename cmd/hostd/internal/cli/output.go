package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// Output is the format in which a command prints its data.
type Output struct {
	format string
	w      io.Writer
}

// AddOutput adds the flag -o to a command. Its value is checked before the
// command runs.
func AddOutput(c *cobra.Command, std Stdio) *Output {
	o := &Output{w: std.Out}
	c.Flags().StringVarP(&o.format, "output", "o", "table", "output `format`: table or json")
	Before(c, func([]string) error { return o.check() })
	return o
}

// JSON reports whether data is printed as JSON.
func (o *Output) JSON() bool { return o.format == "json" }

// check rejects an unknown format.
func (o *Output) check() error {
	if o.format != "table" && o.format != "json" {
		return Usagef("--output is %q, must be table or json", o.format)
	}
	return nil
}

// Print writes v as JSON or, in the table format, calls human.
func (o *Output) Print(v any, human func(w io.Writer)) error {
	if o.JSON() {
		return WriteJSON(o.w, v, "  ")
	}
	human(o.w)
	return nil
}

// Line writes one line of a stream: v as JSON, or text.
func (o *Output) Line(v any, text string) error {
	if o.JSON() {
		return WriteJSON(o.w, v, "")
	}
	_, err := fmt.Fprintln(o.w, text)
	return err
}

// WriteJSON writes a value, or the View of a message, and a line break. It
// escapes invisible characters.
func WriteJSON(w io.Writer, v any, indent string) error {
	if m, ok := v.(proto.Message); ok {
		v = View(m)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, escapeJSON(text.String()))
	return err
}
