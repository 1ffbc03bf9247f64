package main

import (
	"crypto/sha256"
	"fmt"
	"testing"

	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

// TestLinks computes the chain independently of the entity.
func TestLinks(t *testing.T) {
	d := hostdtest.New(t, Chain())
	d.Query("head", nil).Reply(hostd.RawJSON(`{"sequence":0,"hash":""}`))
	var h []byte
	for i, n := range []int64{7, -1, 0, 9007199254740993} {
		id := fmt.Sprintf("id-%d", i)
		sum := sha256.Sum256(append(append([]byte{}, h...), fmt.Sprintf("%s%d", id, n)...))
		h = sum[:]
		want := fmt.Sprintf(`{"sequence":%d,"hash":"%x"}`, i+1, h)
		d.CommandID(id).When("link", Link{n}).Events(Linked{id, n}).Reply(hostd.RawJSON(want))
		d.Query("head", nil).Reply(hostd.RawJSON(want))
	}
}

// TestKnownHash compares the hash of one link with a value that was computed
// with another tool: printf c1%d 5 | sha256sum.
func TestKnownHash(t *testing.T) {
	d := hostdtest.New(t, Chain())
	d.CommandID("c1").When("link", hostd.RawJSON(`{"n":5}`)).Reply(Head{1, knownHash})
}

func TestOrderChangesState(t *testing.T) {
	a := hostdtest.New(t, Chain()).Given(Linked{"x", 1}, Linked{"y", 2}).State()
	b := hostdtest.New(t, Chain()).Given(Linked{"y", 2}, Linked{"x", 1}).State()
	if string(a.Hash) == string(b.Hash) {
		t.Error("a swap does not show")
	}
}

const knownHash = "f37415afb05362d3c3a80c9fc4d16d9aa97c06a1d2e01689821506f1ff6ad759"
