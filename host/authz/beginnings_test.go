package authz

import (
	"fmt"
	"slices"
	"testing"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

func TestVisiblePrefixes(t *testing.T) {
	allow := func(types, prefixes []string, commands ...string) access.Rule {
		return access.Rule{Effect: access.Allow, Verbs: []string{access.Read}, Types: types, IDPrefixes: prefixes, Commands: commands}
	}
	deny := func(prefixes ...string) access.Rule {
		return access.Rule{Effect: access.Deny, Verbs: []string{access.Read}, Types: []string{"a"}, IDPrefixes: prefixes}
	}
	var many []string
	for i := range maxBeginnings + 1 {
		many = append(many, fmt.Sprintf("%02d/", i))
	}
	for name, tt := range map[string]struct {
		rules  []access.Rule
		caller string
		prefix string
		want   []string
	}{
		"none":                        {nil, "ann", "", nil},
		"sorted, each once":           {[]access.Rule{allow(nil, []string{"x/", "b/"}), allow([]string{"a"}, []string{"b/", "b/c"})}, "ann", "", []string{"b/", "x/"}},
		"its own":                     {[]access.Rule{allow(nil, []string{"u/${principal.name}/"})}, "ann", "", []string{"u/ann/"}},
		"a name with the separator":   {[]access.Rule{allow(nil, []string{"u/${principal.name}/"})}, "ann/b", "", nil},
		"of other types":              {[]access.Rule{allow([]string{"b"}, []string{"x/"})}, "ann", "", nil},
		"for a command":               {[]access.Rule{allow(nil, []string{"x/"}, "add")}, "ann", "", nil},
		"as far as they are asked":    {[]access.Rule{allow(nil, []string{"x/", "y/"})}, "ann", "x", []string{"x/"}},
		"denied in part":              {[]access.Rule{allow(nil, []string{"x/"}), deny("x/1")}, "ann", "", nil},
		"denied beside what is asked": {[]access.Rule{allow(nil, []string{"x/"}), deny("y/")}, "ann", "x", []string{"x/"}},
		"as many as there may be":     {[]access.Rule{allow(nil, many[:maxBeginnings])}, "ann", "", many[:maxBeginnings]},
		"more":                        {[]access.Rule{allow(nil, many)}, "ann", "", nil},
	} {
		who, err := principal.New(principal.Token, tt.caller, nil)
		if err != nil {
			t.Fatal(err)
		}
		table := Compile(1, []access.Role{{Name: "r", Rules: tt.rules}}, []access.Binding{{Subject: "token:" + tt.caller, Roles: []string{"r"}}})
		got := table.Beginnings(who, Call{Verb: authv1.Verb_READ, Types: One, Type: "a", IDs: Beginning, ID: tt.prefix})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		for _, b := range got {
			if d := table.Decide(who, Call{Verb: authv1.Verb_READ, Types: One, Type: "a", IDs: Beginning, ID: b}); d != Allowed {
				t.Errorf("%s: what begins with %q is %v", name, b, d)
			}
		}
	}
}
