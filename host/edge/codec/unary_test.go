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
		`{"consistency":"STALE"}`:                                "STALE",
		`{"consistency":"LINEARIZABLE","more":{"and":"more"}}`:   "",
		`{"consistency":1}`:                                      "STALE",
		`{"entityType":"STRANGE"}`:                               "LINEARIZABLE",
		`{"entity_type":"a","json":{"consistency":"SOMETIMES"}}`: "LINEARIZABLE",
		`{"consistency":"SOMETIMES"}`:                            "",
		`{"consistency":"SOMETIMES","consistenc":"LINEARIZE"}`:   "",
		`{"consistency":"stale"}`:                                "",
		`{"consistency":["STALE"]}`:                              "",
		`{"consistency":{}}`:                                     "",
		`{"consistency":"STALE"`:                                 "",
		``:                                                       "",
	} {
		var m entityv1.QueryEntityRequest
		err := codec.Unmarshal([]byte(text), &m)
		if (err == nil) != (want != "") || err == nil && m.GetConsistency().String() != want {
			t.Errorf("%s: %v, %v", text, m.GetConsistency(), err)
		}
		if strings.Contains(text, `"SOMETIMES"}`) && want == "" && !strings.Contains(err.Error(), "must be one of LINEARIZABLE, STALE") {
			t.Errorf("%s: %v", text, err)
		}
	}
	m := &entityv1.QueryEntityRequest{EntityType: "a", EntityId: "b", Consistency: entityv1.Consistency_STALE}
	text, err := codec.MarshalStable(m)
	var back entityv1.QueryEntityRequest
	if err != nil || codec.Unmarshal(text, &back) != nil || !proto.Equal(m, &back) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestUnknownMembersAreNamed: the JSON form rejects a misspelled member by name
// and suggests the right one; the binary form ignores unknown fields.
func TestUnknownMembersAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"entityTyp":"counter","entityId":"a"}`: `QueryEntityRequest: unknown member "entityTyp", did you mean "entityType"?`,
		`{"colour":1}`:                           `QueryEntityRequest: unknown member "colour", must be one of entityType, entityId, query, json, data, consistency`,
	} {
		var m entityv1.QueryEntityRequest
		if err := (Unary{As: "json"}).Unmarshal([]byte(text), &m); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	var nested entityv1.SendCommandStreamRequest
	if err := unmarshalJSON([]byte(`{"requests":[{"request":{"entityId":"a"}},{"request":{"comand":"add"}}]}`), &nested); err == nil || !strings.Contains(err.Error(), `unknown member "comand", did you mean "command"?`) {
		t.Errorf("%v", err)
	}
	later := []byte{0xfa, 0x7f, 1, 'x'} // field 2047
	var m entityv1.QueryEntityRequest
	if err := proto.Unmarshal(later, &m); err != nil {
		t.Error(err)
	}
}
