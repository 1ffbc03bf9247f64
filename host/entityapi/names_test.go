package entityapi

import (
	"testing"
	"unicode/utf8"

	"buf.build/go/protovalidate"

	"github.com/hostd/hostd/abi"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/sharding"
)

// TestNameRulesAgree checks for every code point that the rules for names are
// the same for guests, callers, the journal and the validation of messages.
func TestNameRulesAgree(t *testing.T) {
	var edges []rune // code points where the result changes, and some more
	last := false
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		text := string(r)
		good := sharding.ValidateID(text) == nil
		for what, err := range map[string]error{
			"abi.ValidateEntityID": abi.ValidateEntityID(text), "abi.ValidateName": abi.ValidateName("command", text),
			"CheckName": checkName("command", text), "CheckID": checkCommandID(text),
		} {
			if (err == nil) != good {
				t.Errorf("%U: sharding.ValidateID says %v, %s says %v", r, good, what, err)
			}
		}
		if good != last || r%4099 == 0 {
			edges = append(edges, r-1, r, r+1)
		}
		last = good
	}
	if len(edges) < 40 {
		t.Fatalf("%d code points are left to look at", len(edges))
	}
	for _, r := range edges {
		if !utf8.ValidRune(r) {
			continue
		}
		err := protovalidate.Validate(&entityv1.GetEntityRequest{EntityType: "a", EntityId: string(r)})
		if good := sharding.Printable(r); (err == nil) != good {
			t.Errorf("%U: sharding.Printable says %v, the rule of a message says %v", r, good, err)
		}
	}
}
