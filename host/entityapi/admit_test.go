package entityapi

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

type encodingOf struct{ encoding request.Encoding }

func (e encodingOf) Encoding(context.Context, string) (request.Encoding, error) {
	return e.encoding, nil
}

// TestPayloadsAreBoundedAsModulesGetThem: the limit counts the bytes that the
// module gets, whatever the request has. A larger input would count as a fault
// of the entity.
func TestPayloadsAreBoundedAsModulesGetThem(t *testing.T) {
	const limit = 1 << 20
	text := func(s string) payloadGiven {
		return payloadGiven{Kind: wire.JSONPayload, JSON: structpb.NewStringValue(s)}
	}
	for name, tt := range map[string]struct {
		encoding request.Encoding
		given    payloadGiven
		fits     bool
	}{
		"largest text":       {request.JSON, text(strings.Repeat("x", limit-2)), true},
		"text":               {request.JSON, text(strings.Repeat("x", limit-1)), false},
		"control characters": {request.JSON, text(strings.Repeat("\x01", 180_000)), false},
		"largest bytes":      {request.Bytes, payloadGiven{Kind: wire.DataPayload, Data: make([]byte, limit)}, true},
		"bytes":              {request.Bytes, payloadGiven{Kind: wire.DataPayload, Data: make([]byte, limit+1)}, false},
		"JSON as bytes":      {request.JSON, payloadGiven{Kind: wire.DataPayload, Data: []byte(`"` + strings.Repeat("x", limit) + `"`)}, false},
	} {
		id := sharding.EntityID{Type: "t", ID: "e"}
		_, payload, err := admit(t.Context(), encodingOf{tt.encoding}, id, tt.given)
		if tt.fits && (err != nil || len(payload) != limit) || !tt.fits && !strings.Contains(fmt.Sprint(err), "the limit is 1048576") {
			t.Errorf("%s: %d bytes, %v", name, len(payload), err)
		}
		if tt.given.Kind != wire.JSONPayload {
			continue
		}
		encoded, err := proto.Marshal(tt.given.JSON)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = admitEncoded(t.Context(), encodingOf{tt.encoding}, id, wire.JSONPayload, encoded); tt.fits != (err == nil) {
			t.Errorf("%s, in a stream: %v", name, err)
		}
	}
}
