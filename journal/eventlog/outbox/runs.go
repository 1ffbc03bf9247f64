package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// A shard's index of open runs has a pair for each open run, with the time when
// it began, and for each entity type the number of these pairs. The status of a
// run is in its entity row. The index is written when a run begins and ends, so
// steps cost nothing.

// Run stages that an entity becomes an open run, with the time when it began in
// Unix nanoseconds, or that the run ends.
func (s *Stage) Run(entity string, open bool, began int64) error {
	key := append(s.Key(store.ClassRun), entity...)
	value, has, err := s.find(key)
	if err != nil {
		return err
	}
	switch {
	case open && !has:
		s.Set(key, store.AppendCount(make([]byte, 0, 8), uint64(began)), nil)
	case !open && has:
		s.Set(key, nil, value)
	default:
		return nil
	}
	typ := entity[:strings.IndexByte(entity, 0)+1]
	delta := int64(1)
	if !open {
		delta = -1
	}
	_, err = s.count(append(s.Key(store.ClassRun), typ...), delta)
	return err
}

// OpenRuns returns the number of open runs of a type in a shard.
func (r Outboxes) OpenRuns(id sharding.ShardID, entityType string) (uint64, error) {
	n, _, err := r.readCount(id, append([]byte{byte(store.ClassRun)}, entityType+"\x00"...))
	return n, err
}

// RunQuery selects open runs of one type in a shard.
type RunQuery struct {
	Type     string
	IDPrefix string
	After    string // only greater ids
	Limit    int    // at least 1
}

// ListRuns returns the ids of up to q.Limit open runs, in order. It returns
// fewer ids only at the end. It reads a consistent snapshot of the store and
// the memtable.
func (r Outboxes) ListRuns(id sharding.ShardID, q RunQuery) ([]string, error) {
	start := string([]byte{byte(store.ClassRun)}) + q.Type + "\x00"
	l := runLister{limit: q.Limit, start: start, prefix: start + q.IDPrefix, after: start + q.After}
	view, generation, err := r.captureRuns(id, &l)
	if view == nil || err != nil {
		return nil, err
	}
	defer view.Close()
	class := store.AppendPrefix(nil, id, generation, store.ClassRun)
	full := func(key string) []byte { return append(class[:len(class):len(class)], key[1:]...) }
	err = view.Scan(full(l.prefix), full(max(l.prefix, l.after)), func(key, _ []byte) error {
		return l.add(string(append([]byte{byte(store.ClassRun)}, key[len(class):]...)), false)
	})
	if err == nil && len(l.ids) < l.limit {
		err = l.addFresh("")
	}
	if err != nil && !errors.Is(err, store.ErrStop) {
		return nil, fmt.Errorf("list the open runs of shard %d: %w", id, err)
	}
	return l.ids, nil
}

// captureRuns copies the changes of the index that are not in the store yet,
// and returns a view of the store. The view is nil if the shard has no state.
func (r Outboxes) captureRuns(id sharding.ShardID, l *runLister) (view kv.View, generation uint32, err error) {
	defer r.From.Unlock()
	at := r.From.Box(id)
	if at.Box == nil || at.Err != nil {
		return nil, 0, at.Err
	}
	l.changed = make(map[string]bool)
	for _, layer := range [...]*layer{&at.Box.taken, &at.Box.fresh} {
		for _, key := range layer.runs {
			if strings.HasPrefix(key, l.prefix) && key > l.after {
				c, ok := layer.pairs[key]
				l.changed[key] = ok && c.value != nil
			}
		}
	}
	for key, open := range l.changed {
		if open {
			l.fresh = append(l.fresh, key)
		}
	}
	slices.Sort(l.fresh)
	view, err = r.From.View()
	return view, at.Box.rows.Generation, err
}

// runLister merges the index in the store with its later changes. Keys begin
// with the class.
type runLister struct {
	limit                int
	start, prefix, after string
	changed              map[string]bool // whether the run is open now
	fresh                []string        // open runs among them, sorted
	ids                  []string
}

// add adds the run with a key from the store, after adding the fresh runs that
// precede it.
func (l *runLister) add(key string, fresh bool) error {
	if !fresh {
		if err := l.addFresh(key); err != nil {
			return err
		}
		if _, changed := l.changed[key]; changed {
			return nil
		}
	}
	id, ended := strings.CutSuffix(key[len(l.start):], "\x00")
	if !ended || key <= l.after+"\x00" { // the counter of the type's runs, or a run that was already listed
		return nil
	}
	if l.ids = append(l.ids, id); len(l.ids) == l.limit {
		return store.ErrStop
	}
	return nil
}

// addFresh adds the fresh runs up to a key, or all of them if key is empty.
func (l *runLister) addFresh(key string) error {
	for len(l.fresh) > 0 && (key == "" || l.fresh[0] <= key) {
		next := l.fresh[0]
		l.fresh = l.fresh[1:]
		if err := l.add(next, true); err != nil {
			return err
		}
	}
	return nil
}
