package hostd

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
)

type tree struct {
	Name  string `json:"name" hostd:"required,min=1,max=8,desc=what it is called, in short"`
	Left  *tree  `json:"left,omitempty"`
	Right *tree  `json:"right"`
}

type everything struct {
	Flag   bool             `json:"flag"`
	Small  int8             `json:"small"`
	Count  uint16           `json:"count" hostd:"max=10"`
	Big    int64            `json:"big"`
	Huge   uint64           `json:"huge"`
	Ratio  float64          `json:"ratio"`
	Kind   string           `json:"kind" hostd:"enum=a|b"`
	Data   []byte           `json:"data"`
	List   []everythingItem `json:"list"`
	Three  [3]int32         `json:"three"`
	Map    map[string]int64 `json:"map"`
	Maybe  *string          `json:"maybe" hostd:"enum=x"`
	Raw    RawJSON          `json:"raw"`
	Tree   tree             `json:"tree,omitempty"`
	Nested struct {
		X int32 `json:"x,omitempty"`
	} `json:"nested"`
}

type everythingItem struct {
	ID uint32 `json:"id"`
}

type own struct{ text string }

func (o own) MarshalJSON() ([]byte, error)     { return json.Marshal(o.text) }
func (o *own) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &o.text) }
func (own) JSONSchema() string                 { return `{"type":"string","maxLength":3}` }

type holder struct {
	Own own `json:"own"`
}

func schemaType() *Type[everything] {
	t := Entity[everything]("all", JSON, StateVersion(3))
	Event(t, "done", func(*everything, everything) {})
	Event(t, "none", func(*everything, None) {})
	Command(t, "do", func(*Context, *everything, everything) (everything, error) { return everything{}, nil }, Rejects("full", "late"))
	Command(t, "step", func(*Context, *everything, holder) (None, error) { return None{}, nil }, Internal())
	Command(t, "plant", func(*Context, *everything, tree) (tree, error) { return tree{}, nil })
	Query(t, "ask", func(*View, *everything, None) (holder, error) { return holder{}, nil })
	return t
}

// TestDerivedSchemas checks that nodes support the schemas in the manifest, and
// that the schemas accept and reject the right payloads.
func TestDerivedSchemas(t *testing.T) {
	m, err := manifest.Parse(NewGuest("m", "", schemaType()).Describe())
	if err != nil {
		t.Fatal(err)
	}
	if c := m.EntityTypes[0].Commands; !slices.Equal(c[0].Rejections, []string{"full", "late"}) || c[1].Rejections != nil {
		t.Errorf("the codes of rejections are %+v", c)
	}
	if err := m.CheckSchemas(); err != nil {
		t.Fatal(err)
	}
	about := m.EntityTypes[0]
	if about.StateVersion != 3 || about.State == nil || about.Unchecked || about.Events[1].Schema != nil || about.Queries[0].Schema != nil {
		t.Errorf("%+v", about)
	}
	of := map[string]json.RawMessage{"event": about.Events[0].Schema, "reply": about.Commands[0].Reply, "state": about.State, "ask": about.Queries[0].Reply}
	for _, c := range about.Commands {
		of[c.Name] = c.Schema
	}
	full := `"flag":true,"small":-128,"count":10,"big":"9223372036854775807","huge":18446744073709551615,"ratio":1.5,"kind":"a","data":"AAA=","list":[{"id":7}],"three":[1,2,3],"map":{"x":1},"maybe":null,"raw":[1],"nested":{}`
	for _, c := range []struct{ name, text, want string }{
		{"do", `null`, ""}, {"do", `{}`, ""}, {"do", `{` + full + `}`, ""}, {"do", `{"list":null,"map":null,"data":null}`, ""},
		{"do", `{"smal":1}`, `smal: unknown member "smal", did you mean "small"?`},
		{"do", `{"small":128}`, `small: is more than 127`}, {"do", `{"count":11}`, `count: is more than 10`}, {"do", `{"count":-1}`, `count: is less than 0`},
		{"do", `{"kind":"c"}`, `kind: is not one of "a", "b"`}, {"do", `{"maybe":"x"}`, ""}, {"do", `{"big":"x"}`, `big: is not a 64-bit integer in digits`},
		{"do", `{"list":[{"id":-1}]}`, `list[0].id: is less than 0`}, {"do", `{"list":[{"d":1}]}`, `list[0].d: unknown member "d", known members are "id"`},
		{"do", `{"tree":{"name":"x","left":{"nam":"y"}}}`, `tree.left.nam: unknown member "nam", did you mean "name"?; tree.left.name: is missing`},
		{"plant", `{"name":""}`, `name: has fewer than 1 characters`}, {"plant", `{}`, `name: is missing`}, {"plant", `null`, `is null, not an object`},
		{"step", `{"later":1,"own":"abc"}`, ""}, {"step", `{"own":"abcd"}`, `own: has more than 3 characters`},
		{"reply", `{}`, "flag: is missing"}, {"event", `{` + full + `,"later":1}`, ""}, {"state", `{` + full + `}`, ""}, {"ask", `{"own":"a"}`, ""},
	} {
		s, err := schema.Compile(of[c.name], m.Defs)
		if err != nil {
			t.Fatalf("%s: %v: %s", c.name, err, of[c.name])
		}
		got := ""
		for i, v := range s.Check([]byte(c.text)) {
			if i > 0 {
				got += "; "
			}
			got += v.String()
		}
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s %s\n got %s\nwant %s\n  of %s", c.name, c.text, got, c.want, of[c.name])
		}
	}
	if text := string(of["plant"]); !strings.Contains(text, "$ref") || !strings.Contains(string(m.Defs["tree"]), `"description":"what it is called, in short"`) {
		t.Errorf("%s, %s", text, m.Defs)
	}
}

func TestNoSchemasOmitsSchemas(t *testing.T) {
	typ := Entity[holder]("bare", JSON, NoSchemas())
	Command(typ, "do", func(*Context, *holder, tree) (holder, error) { return holder{}, nil })
	m, err := manifest.Parse(NewGuest("m", "", typ).Describe())
	if err != nil || m.HasSchemas() {
		t.Errorf("%v, %+v", err, m)
	}
	open := Entity[holder]("open", JSON, Unchecked())
	if m, err = manifest.Parse(NewGuest("m", "", open).Describe()); err != nil || !m.EntityTypes[0].Unchecked {
		t.Errorf("%v, %+v", err, m)
	}
	if text := string(NewGuest("m", "", Entity[[]byte]("raw", Bytes)).Describe()); strings.Contains(text, "state") {
		t.Error(text)
	}
}

func TestInvalidTagsPanic(t *testing.T) {
	for name, declare := range map[string]func(){
		"hostd option requird is not known": func() {
			Entity[struct {
				A int `hostd:"requird"`
			}]("t", JSON)
		},
		"hostd option min=x has no number": func() {
			Entity[struct {
				A int `hostd:"min=x"`
			}]("t", JSON)
		},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, name) {
					t.Errorf("%s: %v", name, text)
				}
			}()
			declare()
		}()
	}
}
