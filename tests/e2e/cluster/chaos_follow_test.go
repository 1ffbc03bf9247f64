package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/tests/support/testkit"
)

// told is one event as a reader received it and as the journal has it.
type told struct {
	sequence uint64
	text     string
	command  string
}

func toldEvent(e client.Delivery) told {
	return told{e.Sequence, fmt.Sprintf("%s|%x|%x|%d|%q|%s", e.Type, e.Data, e.CommandID, e.RecordedAt.UnixNano(), e.Tags, e.ModuleDigest), e.CommandID}
}

func storedEvent(rec *journal.Record, i int) told {
	e := &rec.Events[i]
	return told{uint64(rec.Expected) + uint64(i) + 1,
		fmt.Sprintf("%s|%x|%x|%d|%q|%s", e.Type, e.Payload, rec.CommandID, rec.RecordedAt, e.Tags, rec.Module), string(rec.CommandID)}
}

// stream is a program that follows a type: the events that it received, and the
// cursor after the last of them. It resumes from that cursor.
type stream struct {
	of      string // entity type
	mu      sync.Mutex
	events  map[string][]told // events by entity, in the order received
	count   int
	skipped uint64 // events that were truncated before it reached them
	cursor  string
	lives   int
	err     error
}

func newStream(of string) *stream { return &stream{of: of, events: map[string][]told{}} }

// read reads from the cursor until ctx or the subscription ends.
func (s *stream) read(ctx context.Context, c *client.Client, follow bool) {
	var pending uint64 // events skipped since the last event that was handled
	for e, err := range c.Subscribe(ctx, client.Subscription{
		EntityType: s.of, Cursor: s.cursor, Follow: follow, SkipTruncated: s.of == "brief", Skipped: func(events uint64) { pending += events },
	}) {
		s.mu.Lock()
		if err != nil {
			if ctx.Err() == nil {
				s.err = err
			}
			s.mu.Unlock()
			return
		}
		s.events[e.EntityID] = append(s.events[e.EntityID], toldEvent(e))
		s.count++
		s.skipped += pending
		pending, s.cursor = 0, e.Cursor()
		s.mu.Unlock()
	}
}

// streams are several streams of each type. Each stream resumes repeatedly at
// different nodes. The last stream pauses in between, so that the events that
// it needs next may have been truncated.
type streams struct {
	all     []*stream
	stop    context.CancelFunc
	running sync.WaitGroup
	hurry   atomic.Bool // set when no stream pauses any more
}

func follow(w *world, l *chaosLoad) *streams {
	ctx, stop := context.WithCancel(context.Background())
	f := &streams{all: []*stream{newStream("whole"), newStream("brief"), newStream("brief")}, stop: stop}
	for i, s := range f.all {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 3))
		f.running.Go(func() {
			for ctx.Err() == nil && s.err == nil {
				generation, end := context.WithTimeout(ctx, time.Duration(100+rng.IntN(1500))*time.Millisecond)
				c := w.c
				if rng.IntN(2) == 0 {
					c = l.clients[rng.IntN(len(l.clients))]
				}
				s.read(generation, c, true)
				s.lives++
				end()
				for rest := rng.IntN(300); i == 2 && rest > 0 && !f.hurry.Load() && ctx.Err() == nil; rest-- {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	w.t.Cleanup(func() { stop(); f.running.Wait() })
	return f
}

// awaitAll waits until the streams have received the last event of every
// entity, and ends them.
func (f *streams) awaitAll(w *world, last map[dest]uint64) {
	w.t.Helper()
	f.hurry.Store(true)
	w.Await("the followers have all events", func() bool {
		for _, s := range f.all {
			if !s.hasAll(w.t, last) {
				return false
			}
		}
		return true
	})
	f.stop()
	f.running.Wait()
}

func (s *stream) hasAll(t *testing.T, last map[dest]uint64) bool {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		t.Fatalf("a follower of %s was told: %v", s.of, s.err)
	}
	for d, sequence := range last {
		if got := s.events[d.ID]; d.Type == s.of && sequence > 0 && (len(got) == 0 || got[len(got)-1].sequence < sequence) {
			return false
		}
	}
	return true
}

// readOnce reads all events of a type from the beginning.
func readOnce(t *testing.T, c *client.Client, entityType string) *stream {
	t.Helper()
	s := newStream(entityType)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if s.read(ctx, c, false); s.err != nil || ctx.Err() != nil {
		t.Fatalf("read %s once: %v %v", entityType, s.err, ctx.Err())
	}
	return s
}

// check compares a stream with the events of a journal, from the first event
// that the journal has of each entity: the events must be the same, each once,
// in order. Truncated events may be missing, and their number must equal the
// number of skipped events that the stream received.
func (s *stream) check(t reporter, name string, have map[dest]*kept) {
	missing := uint64(0)
	for d, k := range have {
		if d.Type != s.of {
			continue
		}
		next := uint64(1)
		for _, e := range s.events[d.ID] {
			switch {
			case e.sequence < next || e.sequence > next && e.sequence > k.first:
				t.Errorf("%s: event %d of %s came where %d is due; the journal begins at %d", name, e.sequence, d, next, k.first)
			case e.sequence >= k.first+uint64(len(k.events)):
				t.Errorf("%s: event %d of %s came, the journal ends before", name, e.sequence, d)
			case e.sequence >= k.first && e.text != k.events[e.sequence-k.first].text:
				t.Errorf("%s: event %d of %s came as\n%s, the journal has\n%s", name, e.sequence, d, e.text, k.events[e.sequence-k.first].text)
			}
			missing += e.sequence - next
			next = e.sequence + 1
		}
		if last := k.first + uint64(len(k.events)); next != last {
			t.Errorf("%s: the events of %s end before %d, in the journal before %d", name, d, next, last)
		}
	}
	if missing != s.skipped {
		t.Errorf("%s: %d events of %s did not come, it was told of %d", name, missing, s.of, s.skipped)
	}
	for id := range s.events {
		if have[dest{s.of, id}] == nil {
			t.Errorf("%s: events of %s/%s, which nobody wrote", name, s.of, id)
		}
	}
}
