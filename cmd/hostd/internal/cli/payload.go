package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// Payload is a payload that may be JSON text. In JSON output, JSON text is
// embedded as it is, and other bytes are base64 in a different member.
type Payload struct {
	JSON json.RawMessage `json:"json,omitempty"`
	Data []byte          `json:"data,omitempty"`
}

// NewPayload finds out whether b is JSON text.
func NewPayload(b []byte) Payload {
	if len(b) == 0 {
		return Payload{}
	}
	if json.Valid(b) && utf8.Valid(b) {
		var compact bytes.Buffer
		if json.Compact(&compact, b) == nil {
			return Payload{JSON: compact.Bytes()}
		}
	}
	return Payload{Data: b}
}

// Text returns the payload for people: JSON text as it is, other bytes quoted.
func (p Payload) Text() string {
	if p.JSON != nil {
		return escapeJSON(string(p.JSON))
	}
	if len(p.Data) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", p.Data)
}

// maxPayloadBytes limits a payload that is read from standard input.
const maxPayloadBytes = 1 << 20

// PayloadArg returns the payload in argument i: its text, or the content of
// standard input if it is a dash.
func PayloadArg(std Stdio, args []string, i int) ([]byte, error) {
	if len(args) <= i {
		return nil, nil
	}
	if args[i] != "-" {
		return []byte(args[i]), nil
	}
	data, err := io.ReadAll(io.LimitReader(std.In, maxPayloadBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	if len(data) > maxPayloadBytes {
		return nil, fmt.Errorf("the payload has more than %d bytes", maxPayloadBytes)
	}
	return data, nil
}

// maxModuleBytes limits the file of a module; the server's limit is lower.
const maxModuleBytes = 32 << 20

// ReadModule reads the file of a module.
func ReadModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, Hint(err, "Give the path of a .wasm file.")
	}
	defer f.Close()
	wasm, err := io.ReadAll(io.LimitReader(f, maxModuleBytes+1))
	if err != nil {
		return nil, err
	}
	if len(wasm) > maxModuleBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxModuleBytes)
	}
	return wasm, nil
}
