package hostd_test

import (
	"strconv"
	"testing"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

type named struct {
	Name string `json:"name"`
}

func newcomers() *hostd.Type[named] {
	t := hostd.Entity[named]("newcomer", hostd.JSON)
	hostd.Query(t, "who", func(v *hostd.View, s *named, _ hostd.None) (named, error) { return named{v.EntityID()}, nil })
	return t
}

// Whatever handles a host uses, each of them identifies one entity from its
// load until it is dropped.
func TestHandlesIdentifyEntities(t *testing.T) {
	g := hostd.NewGuest("handles", "1.0.0", newcomers())
	handles := []int64{70_000, 0, 255, 256, 511, 1 << 20}
	load := func(handle int64, id string) {
		t.Helper()
		input := abi.AppendSequence(abi.AppendEntityID(nil, id), 0)
		if status := g.Load(0, handle, input); status != abi.LoadDone {
			t.Fatalf("load of handle %d: %v", handle, status)
		}
	}
	who := func(handle int64) string {
		t.Helper()
		reader := abi.NewReader(g.Query(handle, abi.AppendPayload(abi.AppendName(nil, "who"), nil)))
		frame, ok, err := reader.Next()
		if !ok || err != nil {
			t.Fatalf("query of handle %d: %v, %v", handle, ok, err)
		}
		return string(frame.Body)
	}
	answer := func(id string) string { return `{"name":"` + id + `"}` }
	for _, h := range handles {
		load(h, "e"+strconv.FormatInt(h, 10))
	}
	for _, h := range handles {
		if got, want := who(h), answer("e"+strconv.FormatInt(h, 10)); got != want {
			t.Errorf("handle %d is %s, want %s", h, got, want)
		}
	}
	g.Drop(255)
	g.Drop(1 << 21) // this handle was never loaded
	for _, h := range []int64{255, 257, 1 << 21, -1} {
		if !panics(func() { g.Query(h, nil) }) {
			t.Errorf("handle %d has an entity", h)
		}
	}
	load(255, "another")
	if got, want := who(255), answer("another"); got != want {
		t.Errorf("handle 255 is %s, want %s", got, want)
	}
	if got, want := who(256), answer("e256"); got != want {
		t.Errorf("handle 256 is %s, want %s", got, want)
	}
}

func panics(do func()) (did bool) {
	defer func() { did = recover() != nil }()
	do()
	return false
}
