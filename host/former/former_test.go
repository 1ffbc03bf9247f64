package former_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/former"
)

// TestFormerFieldsSurviveTheWire: former fields of both kinds are in the bytes of
// a message, are absent from its JSON, and are read with the last value that a
// sender gave, whatever other unknown fields surround them.
func TestFormerFieldsSurviveTheWire(t *testing.T) {
	m := &entityv1.SendCommandRequest{EntityType: "counter"}
	former.SetNumber(m, 8, 1)
	former.SetNumber(m, 8, 61_000)
	former.SetText(m, 900, "")
	former.SetText(m, 901, "active")
	bytes, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	bytes = protowire.AppendFixed64(protowire.AppendTag(bytes, 902, protowire.Fixed64Type), 3)
	bytes = protowire.AppendString(protowire.AppendTag(bytes, 8, protowire.BytesType), "of a different type")
	var got entityv1.SendCommandRequest
	if err := proto.Unmarshal(bytes, &got); err != nil {
		t.Fatal(err)
	}
	if n, text := former.Number(&got, 8), former.Text(&got, 901); n != 61_000 || text != "active" {
		t.Errorf("read %d and %q", n, text)
	}
	if n, text := former.Number(&got, 901), former.Text(&got, 900); n != 0 || text != "" {
		t.Errorf("absent fields are %d and %q", n, text)
	}
	text, err := protojson.Marshal(&got)
	if err != nil || protojson.Unmarshal(text, &entityv1.SendCommandRequest{}) != nil || len(text) > len(`{"entityType": "counter"}`) {
		t.Errorf("JSON is %s, %v", text, err)
	}
}
