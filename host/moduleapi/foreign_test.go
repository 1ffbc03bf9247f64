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

// ownersOf compares the owners of types with the owner of one type.
type ownersOf struct {
	owner map[string]string
	to    string
}

func (o ownersOf) IsForeign(from string) bool {
	return o.owner[o.to] != "" && o.owner[o.to] != o.owner[from]
}

func TestForeignSendsAreNamed(t *testing.T) {
	owner := map[string]string{"order": "token:ann", "invoice": "token:ann", "account": "token:bob", "ledger": "token:bob"}
	foreign := func(to string) ownersOf { return ownersOf{owner, to} }
	types := ownedTypes{
		"invoice": {Owners: foreign("invoice")}, "free": {Owners: foreign("free")},
		"account": {Owners: foreign("account"), AcceptsFrom: []string{"order"}}, "ledger": {Owners: foreign("ledger")},
	}
	for _, c := range []struct {
		sends []string
		want  []string
	}{
		{[]string{"order", "invoice", "free", "nowhere"}, nil},
		{[]string{}, nil},
		{[]string{"account"}, []string{"order sends to account, which belongs to a different owner and accepts"}},
		{[]string{"ledger"}, []string{"order sends to ledger, which belongs to a different owner and rejects"}},
		{[]string{"led*"}, []string{"order does not list all types"}},
		{nil, []string{"order does not list all types"}},
	} {
		types["order"] = modules.Type{Sends: c.sends, Owners: foreign("order")}
		got := foreignSends(t.Context(), types, "order")
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%q: %q", c.sends, got)
		}
	}
}
