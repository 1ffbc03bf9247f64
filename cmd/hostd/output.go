package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// output is the form in which a command prints its data.
type output struct {
	format string
	w      io.Writer
}

// addOutput gives a command the flag -o.
func addOutput(c *cobra.Command, std stdio) *output {
	o := &output{w: std.out}
	c.Flags().StringVarP(&o.format, "output", "o", "table", "`format` of the data: table or json")
	return o
}

func (o *output) json() bool { return o.format == "json" }

func (o *output) check() error {
	if o.format != "table" && o.format != "json" {
		return usagef("--output is %q, must be table or json", o.format)
	}
	return nil
}

// print writes v as JSON or, in the table format, whatever human writes.
func (o *output) print(v any, human func(w io.Writer)) error {
	if o.json() {
		return writeJSON(o.w, v, "  ")
	}
	human(o.w)
	return nil
}

// each writes one of several values: as JSON on one line, or whatever human
// writes.
func (o *output) each(v any, human func(w io.Writer)) error {
	if o.json() {
		return writeJSON(o.w, v, "")
	}
	human(o.w)
	return nil
}

// line writes one line of a stream: v as JSON on one line, or text.
func (o *output) line(v any, text string) error {
	if o.json() {
		return writeJSON(o.w, v, "")
	}
	_, err := fmt.Fprintln(o.w, text)
	return err
}

func writeJSON(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(v)
}

// table writes rows under a header, in columns.
func table(w io.Writer, header string, rows func(row func(columns ...any))) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, header)
	rows(func(columns ...any) {
		for i, c := range columns {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, clean(fmt.Sprint(c)))
		}
		fmt.Fprintln(tw)
	})
	tw.Flush()
}

// clean keeps text that came from elsewhere from moving the cursor: it quotes
// text with control characters.
func clean(s string) string {
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return fmt.Sprintf("%q", s)
		}
	}
	return s
}

// payload is bytes that may be JSON text: as JSON they stand for themselves,
// other bytes are base64 under another name.
type payload struct {
	JSON json.RawMessage `json:"json,omitempty"`
	Data []byte          `json:"data,omitempty"`
}

func newPayload(b []byte) payload {
	if len(b) == 0 {
		return payload{}
	}
	if json.Valid(b) && utf8.Valid(b) {
		var compact bytes.Buffer
		if json.Compact(&compact, b) == nil {
			return payload{JSON: compact.Bytes()}
		}
	}
	return payload{Data: b}
}

// text is the payload for people: JSON text as it is, other bytes quoted.
func (p payload) text() string {
	if p.JSON != nil {
		return string(p.JSON)
	}
	if len(p.Data) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", p.Data)
}
