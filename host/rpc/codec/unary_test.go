package codec

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

func TestJSONNamesOfValues(t *testing.T) {
	codec := Unary{As: "json"}
	for text, want := range map[string]string{
		`{"consistency":"STALE"}`:                              "STALE",
		`{"consistency":"LINEARIZABLE","more":{"and":"more"}}`: "LINEARIZABLE",
		`{"consistency":1}`:                                    "STALE",
		`{"entityType":"STRANGE","more":"STRANGE"}`:            "LINEARIZABLE",
		`{"json":{"consistency":"SOMETIMES"},"later":[1,2]}`:   "LINEARIZABLE",
		`{"consistency":"SOMETIMES"}`:                          "",
		`{"consistency":"SOMETIMES","consistenc":"LINEARIZE"}`: "",
		`{"consistency":"stale"}`:                              "",
		`{"consistency":["STALE"]}`:                            "",
		`{"consistency":{}}`:                                   "",
		`{"consistency":"STALE"`:                               "",
		``:                                                     "",
	} {
		var m entityv1.QueryRequest
		err := codec.Unmarshal([]byte(text), &m)
		if (err == nil) != (want != "") || err == nil && m.GetConsistency().String() != want {
			t.Errorf("%s: %v, %v", text, m.GetConsistency(), err)
		}
		if strings.Contains(text, `"SOMETIMES"}`) && want == "" && !strings.Contains(err.Error(), "none of LINEARIZABLE, STALE") {
			t.Errorf("%s: %v", text, err)
		}
	}
	m := &entityv1.QueryRequest{EntityType: "a", EntityId: "b", Consistency: entityv1.Consistency_STALE}
	text, err := codec.MarshalStable(m)
	var back entityv1.QueryRequest
	if err != nil || codec.Unmarshal(text, &back) != nil || !proto.Equal(m, &back) {
		t.Errorf("%s, %v", text, err)
	}
}
