package authorize

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/sharding/access"
)

// procedures returns the procedures of all services, by name.
func procedures() map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	for _, s := range procedure.Services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			out[procedure.PathOf(m)] = m
		}
	}
	return out
}

// values are the values for the fields of requests, including "".
var values = map[protoreflect.Name][]string{
	"entity_type": {"", "open", "shut"},
	"entity_id":   {"", "mine/1", "other/1"},
	"digest":      {"", "of open", "of both", "of none"},
	"key":         {"", "log.level", "entity.open.suspended", "entity.shut.value.x", "entity.open"},
	"key_prefix":  {"", "log.", "ent", "entity.", "entity.op", "entity.open.", "entity.shut.value."},
	"command":     {"add", "get-all"},
	"query":       {"add", "get-all"},
}

// requests returns the requests of a procedure with every combination of values.
func requests(t *testing.T, m protoreflect.MethodDescriptor) []any {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	out := []protoreflect.Message{kind.New()}
	for i := range m.Input().Fields().Len() {
		field := m.Input().Fields().Get(i)
		if field.Kind() != protoreflect.StringKind || values[field.Name()] == nil {
			continue
		}
		var next []protoreflect.Message
		for _, before := range out {
			for _, value := range values[field.Name()] {
				filled := kind.New()
				before.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool { filled.Set(f, v); return true })
				if filled.Set(field, protoreflect.ValueOfString(value)); value == "" {
					filled.Clear(field)
				}
				next = append(next, filled)
			}
		}
		out = next
	}
	messages := make([]any, len(out))
	for i, r := range out {
		messages[i] = r.Interface()
	}
	return messages
}

// roleSets returns rules that a caller may have for a verb.
func roleSets(verb string) map[string][]access.Rule {
	allow := func(types, ids, commands []string) access.Rule {
		return access.Rule{Effect: access.Allow, Verbs: []string{verb}, Types: types, IDPrefixes: ids, Commands: commands}
	}
	deny := func(types, ids []string) access.Rule {
		return access.Rule{Effect: "deny", Verbs: []string{verb}, Types: types, IDPrefixes: ids}
	}
	all, open, shut, mine := allow(nil, nil, nil), []string{"open"}, []string{"shut"}, []string{"mine/"}
	return map[string][]access.Rule{
		"nothing":             nil,
		"all":                 {all},
		"one type":            {allow(open, nil, nil)},
		"types by prefix":     {allow([]string{"op*"}, nil, nil)},
		"all types by name":   {allow([]string{"*"}, nil, nil)},
		"some ids":            {allow(open, mine, nil)},
		"some commands":       {allow(open, nil, []string{"get-*"})},
		"all but a type":      {all, deny(shut, nil)},
		"all but some ids":    {all, deny(open, mine)},
		"all but types by a":  {all, deny([]string{"sh*"}, nil)},
		"a type but some ids": {allow(open, nil, nil), deny(nil, mine)},
	}
}

func typesOf(digest string) []string {
	return map[string][]string{"of open": {"open"}, "of both": {"open", "shut"}}[digest]
}

// TestCanIAgreesWithCalls: whatever a request is about, and whatever the roles
// are, CheckAccess gives the same answer as the call.
func TestCanIAgreesWithCalls(t *testing.T) {
	who := &principal.Principal{Kind: principal.Token, Name: "ann"}
	for verb := range authv1.Verb_name {
		for named, rules := range roleSets(authz.VerbText(authv1.Verb(verb))) {
			a := New(Options{Logger: slog.New(slog.DiscardHandler), Cluster: &state{typesOf: typesOf}})
			a.Set(authz.Compile(1, []access.Role{{Name: "r", Rules: rules}}, []access.Binding{
				{Subject: "token:root", Roles: []string{access.RoleAdmin}}, {Subject: "token:ann", Roles: []string{"r"}},
			}))
			for name, m := range procedures() {
				about := procedure.At(name)
				if about.Verb != authv1.Verb(verb) || about.Scope == procedure.Later || about.Scope == procedure.Founding {
					continue
				}
				for _, request := range requests(t, m) {
					calls := a.calls(about, request)
					asked := true
					for _, c := range calls {
						_, err := a.decide(maker{who: who}, &procedure.Procedure{Verb: c.Verb}, question(t, c)) // as in Explain
						asked = asked && err == nil
					}
					if allowed := a.decideAll(maker{who: who}, about, calls) == nil; allowed != asked {
						t.Errorf("%s of %v with %s: the call is allowed: %v, can-i says %v", name, request, named, allowed, asked)
					}
				}
			}
		}
	}
}

// question converts a call to the CheckAccess question that a person would ask.
func question(t *testing.T, c authz.Call) authz.Call {
	m := &clusterv1.CheckAccessRequest{Verb: authz.VerbText(c.Verb), EntityType: c.Type, Command: c.Command}
	if c.Types == authz.Beginning {
		m.EntityType += "*"
	}
	if c.IDs == authz.One {
		m.EntityId = c.ID
	}
	q, known := CallOf(m)
	if !known {
		t.Fatalf("there is no verb %q", m.GetVerb())
	}
	return q
}

// TestDenyRulesApplyToIndirectlyNamedTypes: a rule that denies a type also
// denies requests that name it by a digest, by a setting, or that concern
// everything.
func TestDenyRulesApplyToIndirectlyNamedTypes(t *testing.T) {
	who := &principal.Principal{Kind: principal.Token, Name: "ann"}
	for verb := range authv1.Verb_name {
		a := New(Options{Logger: slog.New(slog.DiscardHandler), Cluster: &state{typesOf: typesOf}})
		a.Set(authz.Compile(1, []access.Role{{Name: "r", Rules: roleSets(authz.VerbText(authv1.Verb(verb)))["all but a type"]}}, []access.Binding{
			{Subject: "token:root", Roles: []string{access.RoleAdmin}}, {Subject: "token:ann", Roles: []string{"r"}},
		}))
		for name, m := range procedures() {
			about := procedure.At(name)
			if about.Verb != authv1.Verb(verb) || about.Scope == procedure.Later || about.Scope == procedure.OfNothing || about.Scope == procedure.Founding {
				continue
			}
			for _, request := range requests(t, m) {
				text := fmt.Sprint(request)
				if strings.Contains(text, "op") && !strings.Contains(text, "shut") || strings.Contains(text, "log.") {
					continue
				}
				if a.decideAll(maker{who: who}, about, a.calls(about, request)) == nil && !harmless(request) {
					t.Errorf("%s of %v is allowed", name, request)
				}
			}
		}
	}
}

// harmless reports whether a request names only a setting of the cluster, and no
// type.
func harmless(request any) bool {
	r, ok := request.(interface{ GetKey() string })
	return ok && !strings.HasPrefix(r.GetKey(), "entity.")
}

// TestDenyRulesReachTypesOfTheSameModule: a request that names a module by one
// of its types is denied if a rule denies another type of that module.
func TestDenyRulesReachTypesOfTheSameModule(t *testing.T) {
	a := New(Options{Logger: slog.New(slog.DiscardHandler), Cluster: &state{typesOf: typesOf, servedWith: map[string][]string{"open": {"shut", "open"}, "alone": {"alone"}}}})
	a.Set(authz.Compile(1, []access.Role{{Name: "r", Rules: roleSets(access.Read)["all but a type"]}, {Name: "one", Rules: roleSets(access.Read)["one type"]}}, []access.Binding{
		{Subject: "token:root", Roles: []string{access.RoleAdmin}}, {Subject: "token:ann", Roles: []string{"r"}}, {Subject: "token:bo", Roles: []string{"one"}},
	}))
	for _, c := range []struct {
		name, entityType string
		want             bool
	}{{"ann", "open", false}, {"ann", "shut", false}, {"ann", "alone", true}, {"ann", "unknown", true}, {"bo", "open", false}, {"bo", "alone", false}} {
		for path, request := range map[string]any{
			modulev1connect.ModuleServiceGetModuleProcedure:  &modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_EntityType{EntityType: c.entityType}},
			modulev1connect.ModuleServiceGetRolloutProcedure: &modulev1.GetRolloutRequest{EntityType: c.entityType},
		} {
			about := procedure.At(path)
			by := maker{who: &principal.Principal{Kind: principal.Token, Name: c.name}}
			if allowed := a.decideAll(by, about, a.calls(about, request)) == nil; allowed != c.want {
				t.Errorf("%s: %s of %s: allowed %v, want %v", c.name, path, c.entityType, allowed, c.want)
			}
		}
	}
}
