package moduleapi

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
)

// ownedTypes are types by name, as a node serves them.
type ownedTypes map[string]modules.Type

func (o ownedTypes) Lookup(_ context.Context, name string) (modules.Type, error) {
	if t, ok := o[name]; ok {
		return t, nil
	}
	return modules.Type{}, request.ErrUnknownType
}

func (o ownedTypes) Names() (names []string) {
	for name := range o {
		names = append(names, name)
	}
	return names
}

func TestForeignSendsAreNamed(t *testing.T) {
	owner := map[string]string{"order": "token:ann", "invoice": "token:ann", "account": "token:bob", "ledger": "token:bob"}
	foreign := func(to string) func(string) bool {
		return func(from string) bool { return owner[to] != "" && owner[to] != owner[from] }
	}
	types := ownedTypes{
		"invoice": {IsForeign: foreign("invoice")}, "free": {IsForeign: foreign("free")},
		"account": {IsForeign: foreign("account"), AcceptsFrom: []string{"order"}}, "ledger": {IsForeign: foreign("ledger")},
	}
	for _, c := range []struct {
		sends []string
		want  []string
	}{
		{[]string{"order", "invoice", "free", "nowhere"}, nil},
		{[]string{}, nil},
		{[]string{"account"}, []string{"order sends to account, which belongs to another owner and accepts"}},
		{[]string{"ledger"}, []string{"order sends to ledger, which belongs to another owner and refuses"}},
		{[]string{"led*"}, []string{"order does not list all types"}},
		{nil, []string{"order does not list all types"}},
	} {
		types["order"] = modules.Type{Sends: c.sends, IsForeign: foreign("order")}
		got := foreignSends(t.Context(), types, "order")
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%q: %q", c.sends, got)
		}
	}
}
