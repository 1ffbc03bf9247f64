package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"connectrpc.com/connect"
)

func asError(err error, to **connect.Error) bool { return errors.As(err, to) }

// compact removes spaces from JSON, because protojson inserts them at random.
func compact(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		t.Errorf("%q is no JSON: %v", text, err)
	}
	return out.String()
}
