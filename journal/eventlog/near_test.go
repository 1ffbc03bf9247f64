package eventlog

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/store"
)

// dueView is a store that has nothing but the due timers of one shard.
type dueView struct {
	View
	due map[string]int64
}

func (v *dueView) Scan(prefix, from []byte, fn func(key, body []byte) error) error {
	var keys [][]byte
	for key, due := range v.due {
		keys = append(keys, append(store.AppendDue(bytes.Clone(prefix), due), key...))
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, key := range keys {
		if bytes.Compare(key, from) < 0 {
			continue
		}
		if err := fn(key, nil); err == store.ErrStop {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// TestNearTimersAreTheStores: between its ends, what is held of a shard's
// timers is what the store has, however they are set, set again and ended.
func TestNearTimersAreTheStores(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sh := &shard{id: 1}
	v := &dueView{due: make(map[string]int64)}
	var near nearTimers
	reads, held := 0, 0
	for now := range int64(1000) {
		changes := make(map[string]timerChange)
		for key, due := range v.due {
			if due < now { // it has fired
				changes[key] = timerChange{}
			}
		}
		for range rng.IntN(100) {
			key := fmt.Sprint("alarm-", rng.IntN(2000))
			change := timerChange{}
			if rng.IntN(3) > 0 {
				change.timer = store.Timer{Due: now + rng.Int64N(300), Command: []byte("ring")}
			}
			changes[key] = change
		}
		for key, change := range changes {
			if delete(v.due, key); !change.gone() {
				v.due[key] = change.timer.Due
			}
		}
		near.flushed(changes)
		for _, key := range slices.Sorted(maps.Keys(v.due)) {
			due := v.due[key]
			place := timerPlace{due, key}
			if near.behind(place) && rng.IntN(100) == 0 {
				if err := near.read(v, sh, place); err != nil || near.due[key] != due {
					t.Fatal(err, near.due[key], due)
				}
				reads++
			}
		}
		if near.due == nil {
			continue
		}
		want := maps.Clone(v.due)
		maps.DeleteFunc(want, func(key string, due int64) bool {
			place := timerPlace{due, key}
			return near.behind(place) || place.compare(near.from) < 0
		})
		if !maps.Equal(near.due, want) {
			t.Fatalf("%d timers are held, the store has %d there", len(near.due), len(want))
		}
		held = max(held, len(near.due))
	}
	if reads < 10 || held <= nearRead || held > nearMost {
		t.Errorf("after %d reads, %d were held at most", reads, held)
	}
}
