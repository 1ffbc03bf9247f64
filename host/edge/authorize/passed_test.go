package authorize

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

func who(t testing.TB, kind principal.Kind, name string, groups ...string) *principal.Principal {
	t.Helper()
	p, err := principal.New(kind, name, groups)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// state is the cluster state of a node. The zero value is fresh and open.
type state struct {
	unknown, stale, closed bool
	confirm                func() error // may be nil
	typesOf                func(digest string) []string
	servedWith             map[string][]string
}

func (s *state) Known(uint64) bool                     { return !s.unknown }
func (s *state) Fresh() bool                           { return !s.stale }
func (s *state) Closed() bool                          { return s.closed }
func (s *state) ServedWith(entityType string) []string { return s.servedWith[entityType] }

func (s *state) TypesOf(digest string) []string {
	if s.typesOf == nil {
		return nil
	}
	return s.typesOf(digest)
}

func (s *state) Confirm(context.Context) error {
	if s.confirm == nil {
		return nil
	}
	return s.confirm()
}

// rolesAt returns roles of a revision: root is admin, ann may send the
// command add to counters, and the group staff may query.
func rolesAt(revision uint64, bindings ...access.Binding) *authz.Table {
	roles := []access.Role{
		{Name: "clerk", Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Invoke}, Types: []string{"counter"}, IDPrefixes: []string{"${principal.name}/"}, Commands: []string{"add"}}}},
		{Name: "asker", Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Query}}}},
	}
	return authz.Compile(revision, roles, bindings)
}

var enforced = []access.Binding{
	{Subject: "token:root", Roles: []string{access.RoleAdmin}}, {Subject: "token:ann", Roles: []string{"clerk"}}, {Subject: "group:staff", Roles: []string{"asker"}},
}

// TestForwardedCallIsAuthorizedAgain: a forwarded call is decided by the roles of
// the node that carries it out, whatever the forwarding node has decided.
func TestForwardedCallIsAuthorizedAgain(t *testing.T) {
	s := &state{}
	a := New(Options{Cluster: s, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	ann, bo := who(t, principal.Token, "ann"), who(t, principal.JWT, "bo", "staff")
	add := &request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: "ann/1"}, Name: "add"}
	of := func(p *principal.Principal, roles uint64, change func(*request.Request)) *request.Request {
		q := *add
		if q.Principal, q.Roles = p, roles; change != nil {
			change(&q)
		}
		return &q
	}
	kind := func(k request.Kind) func(*request.Request) { return func(q *request.Request) { q.Kind = k } }
	const (
		allowed = iota
		denied
		unknown
	)
	check := func(what string, q *request.Request, want int) {
		t.Helper()
		err := a.AuthorizeForwarded(q)
		_, no := errors.AsType[*request.DeniedError](err)
		if got := map[bool]int{no: denied, err == nil: allowed, errors.Is(err, request.ErrRolesUnknown): unknown}[true]; got != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("nothing is known", of(ann, 0, nil), unknown)
	a.Set(authz.Compile(1, nil, nil))
	check("there are no roles", of(ann, 0, nil), allowed)
	check("there are no roles, and nobody was asked", of(nil, 0, nil), allowed)
	check("there are roles elsewhere", of(ann, 2, nil), unknown)
	s.unknown = true
	check("there may be roles", of(ann, 0, nil), unknown)
	s.unknown = false

	a.Set(rolesAt(5, enforced...))
	check("an allowed command", of(ann, 5, nil), allowed)
	check("another id", of(ann, 5, func(q *request.Request) { q.Entity.ID = "bo/1" }), denied)
	check("another command", of(ann, 5, func(q *request.Request) { q.Name = "drop" }), denied)
	check("a query", of(ann, 5, kind(request.Query)), denied)
	check("a group's query", of(bo, 5, kind(request.Query)), allowed)
	check("a group's stale query", of(bo, 5, kind(request.StaleQuery)), allowed)
	check("a group's command", of(bo, 5, nil), denied)
	check("who has shown nothing", of(principal.OfNobody(), 5, nil), denied)
	check("who was not asked", of(nil, 0, nil), denied)
	check("who was not asked, by the word of roles", of(nil, 5, nil), denied)
	check("what an entity sends", of(nil, 0, kind(request.Deliver)), allowed)
	check("the other node decides nothing", of(bo, 0, nil), denied)
	check("the other node has older roles", of(bo, 4, nil), denied)
	check("the other node has newer roles", of(bo, 6, nil), unknown)
	check("the other node has newer roles, and these allow it too", of(ann, 6, nil), allowed)
}

// TestDenialIsSameOnEveryNode: the node that carries a request out and the
// node that was asked return the same error.
func TestDenialIsSameOnEveryNode(t *testing.T) {
	a := New(Options{Cluster: &state{}, Logger: slog.New(slog.DiscardHandler)})
	a.Set(rolesAt(1, enforced...))
	q := &request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: "x"}, Name: "add", Principal: who(t, principal.Token, "ann")}
	var there *request.DeniedError
	if !errors.As(a.AuthorizeForwarded(q), &there) || there.Verb != "invoke" || there.EntityType != "counter" ||
		there.Message != `token "ann" lacks the verb invoke for "add" of "counter", id "x": no rule of its roles allows it` {
		t.Errorf("%+v", there)
	}
}

// BenchmarkPassed measures the decision of the node that carries a request out.
func BenchmarkPassed(b *testing.B) {
	a := New(Options{Cluster: &state{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	a.Set(rolesAt(1, enforced...))
	for name, p := range map[string]*principal.Principal{"token": who(b, principal.Token, "ann"), "groups": who(b, principal.Token, "ann", "x", "y", "staff")} {
		b.Run(name, func(b *testing.B) {
			q := &request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: "ann/17"}, Name: "add", Principal: p, Roles: 1}
			b.ReportAllocs()
			for b.Loop() {
				if err := a.AuthorizeForwarded(q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
