package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// Payload is bytes that may be JSON text: as JSON they stand for themselves,
// other bytes are base64 under another name.
type Payload struct {
	JSON json.RawMessage `json:"json,omitempty"`
	Data []byte          `json:"data,omitempty"`
}

// NewPayload tells JSON text from other bytes.
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

// Text is the payload for people: JSON text as it is, other bytes quoted.
func (p Payload) Text() string {
	if p.JSON != nil {
		return escapeJSON(string(p.JSON))
	}
	if len(p.Data) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", p.Data)
}

// maxPayloadBytes bounds a payload that is read from the standard input.
const maxPayloadBytes = 1 << 20

// PayloadArg returns the payload given as argument i: its text, or what the
// standard input holds when it is a dash.
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

// maxModuleBytes bounds what is read of a module's file; the server's limit is
// lower.
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
