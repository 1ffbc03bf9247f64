package entityapi

import (
	"context"
	"errors"
	"testing"

	"github.com/hostd/hostd/host/slots"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestConcurrentScansAreBounded checks that scans wait for a slot before they
// read anything, at most until their deadlines.
func TestConcurrentScansAreBounded(t *testing.T) {
	p := &Parts{scans: slots.New(1)}
	leave, err := p.scan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, scan := range map[string]func() error{
		"timers": func() error { _, err := pendingView{p}.Timers(ended, 1, timerQuery{}); return err },
		"sends": func() error {
			return pendingView{p}.Sends(ended, 1, journal.ItemID{}, func(*journal.Message) error { return nil })
		},
		"dead letters": func() error {
			_, _, err := localDeadLetters{p}.List(ended, 1, journal.ItemID{}, 1, 1)
			return err
		},
		"records": func() error {
			return histories{p}.Records(ended, sharding.EntityID{Type: "t", ID: "a"}, 1, func(journal.Position, *journal.Record) error { return nil })
		},
		"entities": func() error { _, err := entities{p}.List(ended, 1, EntityQuery{}); return err },
	} {
		if err := scan(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	leave()
	if leave, err = p.scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	leave()
}
