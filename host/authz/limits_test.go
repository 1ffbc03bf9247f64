package authz

import (
	"testing"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// TestMostGenerousQuotaWins: for each quota, the limit is the most generous
// value among the roles of the caller and its groups that set the quota.
func TestMostGenerousQuotaWins(t *testing.T) {
	table := Compile(1, []access.Role{
		{Name: "small", Quotas: access.Quotas{CommandsPerSecond: 10, Streams: 5}},
		{Name: "large", Quotas: access.Quotas{CommandsPerSecond: 20, Streams: 3, Uploads: 2}},
		{Name: "free", Quotas: access.Quotas{CommandsPerSecond: access.Unlimited}},
	}, []access.Binding{
		{Subject: "token:root", Roles: []string{access.RoleAdmin, "small"}},
		{Subject: "token:one", Roles: []string{"small", "viewer"}},
		{Subject: "token:two", Roles: []string{"small", "large"}},
		{Subject: "jwt:al", Roles: []string{"small"}},
		{Subject: "group:big", Roles: []string{"large"}},
		{Subject: "group:free", Roles: []string{"free"}},
	})
	al := func(groups ...string) *principal.Principal {
		return &principal.Principal{Kind: principal.JWT, Name: "al", Groups: groups}
	}
	none, free := Limit{}, Limit{access.Unlimited, "free"}
	for _, tt := range []struct {
		who                        *principal.Principal
		commands, streams, uploads Limit
	}{
		{token("nobody"), none, none, none},
		{token("one"), Limit{10, "small"}, Limit{5, "small"}, none},
		{token("two"), Limit{20, "large"}, Limit{5, "small"}, Limit{2, "large"}},
		{al(), Limit{10, "small"}, Limit{5, "small"}, none},
		{al("big"), Limit{20, "large"}, Limit{5, "small"}, Limit{2, "large"}},
		{al("free", "big"), free, Limit{5, "small"}, Limit{2, "large"}},
		{al("big", "free"), free, Limit{5, "small"}, Limit{2, "large"}},
	} {
		got := table.Limits(tt.who)
		if got[access.CommandsPerSecond] != tt.commands || got[access.OpenStreams] != tt.streams || got[access.Uploads] != tt.uploads {
			t.Errorf("%s %v: %v", tt.who.Name, tt.who.Groups, got)
		}
	}
	for which, l := range table.Limits(token("root")) {
		if l.Most != access.Unlimited {
			t.Errorf("who is admin has a limit of %s: %v", access.QuotaNames[which], l)
		}
	}
	if !table.HasRates() || Compile(1, nil, []access.Binding{{Subject: "token:a", Roles: []string{"viewer"}}}).HasRates() {
		t.Error("whether there are limits of a second is told wrong")
	}
	if n := testing.AllocsPerRun(100, func() { table.Limits(token("one")); table.Limits(al("big", "free")) }); n > 1 {
		t.Errorf("%v allocations", n) // one allocation is for the list of groups
	}
}
