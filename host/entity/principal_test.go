package entity

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestGuestGetsPrincipal checks that guests get the principals of commands
// and queries, in the format of the contract.
func TestGuestGetsPrincipal(t *testing.T) {
	w := quiet(t)
	bo, err := principal.New(principal.JWT, "bo", []string{"staff"})
	if err != nil {
		t.Fatal(err)
	}
	frame := func(kind, name string, groups ...string) []byte {
		return abi.AppendPrincipal(nil, kind, name, groups...)[abi.HeaderBytes:]
	}
	for i, c := range []struct {
		of   *principal.Principal
		want []byte
	}{{bo, frame("jwt", "bo", "staff")}, {nil, nil}, {principal.OfNobody(), frame("anonymous", "")}} {
		for _, kind := range []request.Kind{request.Command, request.Query, request.StaleQuery} {
			w.who = []byte("nobody was called")
			q := &request.Request{Kind: kind, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "sum", Payload: []byte("1"), Principal: c.of}
			if kind == request.Command {
				q.Name, q.ID = "add", journal.CommandID(fmt.Sprint("c-", i))
			}
			if res := w.submit(q); res.Err != nil || !slices.Equal(w.who, c.want) {
				t.Errorf("%v of %+v: %v, the guest got %q", kind, c.of, res.Err, w.who)
			}
		}
	}
}

// TestRecordStoresPrincipal checks that records have the principal if their
// type asks for it and the cluster version supports it, and that the hash
// chain does not depend on it.
func TestRecordStoresPrincipal(t *testing.T) {
	bo, err := principal.New(principal.JWT, "bo", []string{"staff"})
	if err != nil {
		t.Fatal(err)
	}
	var chain journal.Hash
	for i, c := range []struct {
		asks  bool
		level sharding.ClusterVersion
		of    *principal.Principal
		want  []byte
	}{
		{true, sharding.VersionRecordPrincipal, bo, bo.Bytes()},
		{true, sharding.VersionRecordPrincipal, nil, nil},
		{true, sharding.VersionRecordPrincipal - 1, bo, nil},
		{false, sharding.VersionRecordPrincipal, bo, nil},
	} {
		w := quiet(t)
		w.typ.RecordPrincipal = c.asks
		w.core.opts.ClusterVersion = func() sharding.ClusterVersion { return c.level }
		if res := w.submit(&request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "add", Payload: []byte("1"), ID: "c", Principal: c.of}); res.Err != nil {
			t.Fatal(res.Err)
		}
		rec := w.log[len(w.log)-1]
		if got := rec.Section(journal.SectionPrincipal); !slices.Equal(got, c.want) {
			t.Errorf("case %d: the record keeps %q", i, got)
		}
		rec.Term, rec.RecordedAt = 0, 0
		var links journal.Chain
		if link := links.After(&rec); i == 0 {
			chain = link
		} else if link != chain {
			t.Errorf("case %d: the hash of the chain differs", i)
		}
	}
}
