package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/tests/support/testkit"
)

// Only entities that have an event with the tag are listed, each once.
func TestTaggedEntities(t *testing.T) {
	dir := t.TempDir()
	cart := filepath.Join(dir, "cart.wasm")
	if err := os.WriteFile(cart, testkit.BuildExample(t, "cart"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.ShareCache(t, filepath.Join(dir, "data", "n1"))
	ports := filepath.Join(dir, "ports.json")
	dev := start(t, "dev", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--shards", "3", "--ports-file", ports, "--module", cart)
	node := dev.ready(t, ports)
	t.Setenv("HOSTD_ADDR", node.API)
	for _, id := range []string{"c", "a-1", "b", "a-2"} {
		if got := hostd(t, "entity", "send", "cart", id, "add", `{"sku":"pen","quantity":1,"price":3}`); got.code != cli.ExitDone {
			t.Fatalf("add: %+v", got)
		}
		if id == "b" {
			continue
		}
		if got := hostd(t, "entity", "send", "cart", id, "checkout"); got.code != cli.ExitDone {
			t.Fatalf("checkout: %+v", got)
		}
	}
	ids := func(args ...string) string {
		t.Helper()
		got := hostd(t, append([]string{"entity", "tagged", "cart"}, append(args, "-o", "json")...)...)
		if got.code != cli.ExitDone {
			t.Fatalf("%+v", got)
		}
		var found []string
		for _, e := range decode[taggedList](t, got.out).Entities {
			found = append(found, e.EntityID)
			if e.Events != 1 || e.Last.IsZero() {
				t.Errorf("%+v", e)
			}
		}
		return strings.Join(found, " ")
	}
	if got := ids("checkout"); got != "a-1 a-2 c" {
		t.Errorf("with the tag: %s", got)
	}
	if got := ids("checkout", "--prefix", "a-"); got != "a-1 a-2" {
		t.Errorf("with the prefix: %s", got)
	}
	if got := ids("check"); got != "" {
		t.Errorf("with another tag: %s", got)
	}
	if got := hostd(t, "entity", "tagged", "cart", "checkout", "--limit", "2"); strings.Count(got.out, "\n") != 3 || !strings.Contains(got.err, "more than 2") {
		t.Errorf("two of three: %+v", got)
	}
	if got := hostd(t, "entity", "tagged", "card", "checkout"); got.code != cli.ExitFailed || got.out != "" {
		t.Errorf("a type that is not there: %+v", got)
	}
	dev.interrupt()
	if code := dev.end(t); code != cli.ExitDone {
		t.Errorf("exit code %d, %s", code, dev.err.String())
	}
}

// An entity is listed once, with the time of the last event, however many
// events have the tag. Entities beyond the limit are not listed. They are
// counted if their number is known.
func TestTaggedEntityIsListedOnce(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	events := func(yield func(client.Delivery, error) bool) {
		for i, id := range []string{"b", "a", "b", "c", "b", "a"} {
			if !yield(client.Delivery{EntityID: id, Event: client.Event{RecordedAt: begin.Add(time.Duration(i) * time.Second)}}, nil) {
				return
			}
		}
	}
	var v taggedList
	if err := v.collect(events, "", 2); err != nil {
		t.Fatal(err)
	}
	want := []taggedLine{{"a", 2, begin.Add(5 * time.Second)}, {"b", 3, begin.Add(4 * time.Second)}}
	if !slices.Equal(v.Entities, want) || !v.more {
		t.Errorf("%+v", v)
	}
	broken := errors.New("broken")
	v = taggedList{}
	if err := v.collect(func(yield func(client.Delivery, error) bool) { yield(client.Delivery{}, broken) }, "", 2); !errors.Is(err, broken) {
		t.Errorf("of a stream that breaks: %v", err)
	}
}
