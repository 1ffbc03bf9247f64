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

// TestGuestsAreToldWhoCalls: of commands and queries that have a principal, as
// the contract has it.
func TestGuestsAreToldWhoCalls(t *testing.T) {
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
				t.Errorf("%v of %+v: %v, the guest was told %q", kind, c.of, res.Err, w.who)
			}
		}
	}
}
